package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"example.org/interop/pb/provisioner"
	"example.org/interop/pb/provisionerd"
	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
	"storj.io/drpc"
	"storj.io/drpc/drpcerr"
	"storj.io/drpc/drpcserver"
)

// serve plays the server. The query parameter `acquire` of a join says what AcquireJobWithCancel does: `now` delivers a
// job at once, `error` ends without one, a duration delivers after it, anything else waits for the cancel.
func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(listener, http.HandlerFunc(join))
}

func join(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/refused" {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"message":"no"}`)
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return
	}
	socket.SetReadLimit(-1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if r.URL.Path == "/text" {
		_ = socket.Write(ctx, websocket.MessageText, []byte("hello"))
		_, _, err := socket.Read(ctx)
		report(map[string]any{"close": int(websocket.CloseStatus(err))})
		return
	}
	conn := &watched{Conn: websocket.NetConn(ctx, socket, websocket.MessageBinary)}
	config := muxConfig()
	if r.URL.Path == "/full" {
		config.AcceptBacklog = 4
	}
	session, err := yamux.Server(conn, config)
	if err != nil {
		return
	}
	switch r.URL.Path {
	case "/echo":
		for stream, err := session.Accept(); err == nil; stream, err = session.Accept() {
			go echo(stream)
		}
		report(map[string]any{"resets_in": conn.in.resets.Load(), "resets_out": conn.out.resets.Load(), "goaways_in": conn.in.goaways.Load()})
		return
	case "/full":
		// Nobody accepts, so that the library resets what does not fit.
		<-session.CloseChan()
		report(map[string]any{"resets_in": conn.in.resets.Load(), "resets_out": conn.out.resets.Load(), "goaways_in": conn.in.goaways.Load()})
		return
	}
	if r.URL.Path == "/goaway" {
		_ = session.GoAway()
	}
	server := drpcserver.New(answers(session, r.URL.Query().Get("acquire")))
	err = serveSession(ctx, session, server)
	report(map[string]any{
		"streams": session.NumStreams(), "resets_in": conn.in.resets.Load(), "resets_out": conn.out.resets.Load(),
		"goaways_in": conn.in.goaways.Load(), "pings_in": conn.in.pings.Load(), "end": fmt.Sprint(err),
	})
}

// echo sends back what it reads, and ends its side when the other has ended.
func echo(stream net.Conn) {
	_, _ = io.Copy(stream, stream)
	_ = stream.Close()
}

func serveSession(ctx context.Context, session *yamux.Session, server *drpcserver.Server) error {
	for {
		stream, err := session.Accept()
		if err != nil {
			return err
		}
		go func() {
			// Closes the stream when the daemon ends it.
			_ = server.ServeOne(ctx, stream)
		}()
	}
}

func report(values map[string]any) {
	line, _ := json.Marshal(values)
	fmt.Println(string(line))
}

func answers(session *yamux.Session, acquire string) handlers {
	return handlers{
		service + "AcquireJobWithCancel": func(stream drpc.Stream) error { return acquireJob(stream, acquire) },
		service + "CommitQuota": unary(func(q *provisionerd.CommitQuotaRequest) (*provisionerd.CommitQuotaResponse, error) {
			return &provisionerd.CommitQuotaResponse{Ok: true, CreditsConsumed: q.DailyCost, Budget: -1}, nil
		}),
		service + "UpdateJob": func(stream drpc.Stream) error {
			q := &provisionerd.UpdateJobRequest{}
			if err := stream.MsgRecv(q, encoding{}); err != nil {
				return err
			}
			switch q.JobId {
			case "refuse":
				return drpcerr.WithCode(errors.New("required template variables: region"), 7)
			case "close":
				return stream.Close()
			case "lost":
				return session.Close()
			}
			return stream.MsgSend(&provisionerd.UpdateJobResponse{
				Canceled:       len(q.Logs) > 0,
				VariableValues: []*provisioner.VariableValue{{Name: "readme", Value: strconv.Itoa(len(q.Readme))}},
			}, encoding{})
		},
		service + "FailJob": unary(func(q *provisionerd.FailedJob) (*provisionerd.Empty, error) {
			return &provisionerd.Empty{}, nil
		}),
		service + "CompleteJob": unary(func(q *provisionerd.CompletedJob) (*provisionerd.Empty, error) {
			return nil, drpcerr.WithCode(errors.New("Unimplemented"), drpcerr.Unimplemented)
		}),
		service + "UploadFile": func(stream drpc.Stream) error {
			data, err := assemble(func() (*provisioner.FileUpload, error) {
				message := &provisioner.FileUpload{}
				return message, stream.MsgRecv(message, encoding{})
			})
			if err != nil {
				return err
			}
			report(map[string]any{"uploaded": len(data)})
			return stream.MsgSend(&provisionerd.Empty{}, encoding{})
		},
		service + "DownloadFile": func(stream drpc.Stream) error {
			q := &provisionerd.FileRequest{}
			if err := stream.MsgRecv(q, encoding{}); err != nil {
				return err
			}
			size, err := strconv.Atoi(q.FileId)
			if err != nil {
				return stream.MsgSend(&provisioner.FileUpload{Type: &provisioner.FileUpload_Error{
					Error: &provisioner.FailedFile{Error: "no such file"}}}, encoding{})
			}
			for _, piece := range pieces(content(size)) {
				if err := stream.MsgSend(piece, encoding{}); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func acquireJob(stream drpc.Stream, how string) error {
	job := &provisionerd.AcquiredJob{JobId: "5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10", Provisioner: "terraform",
		Type: &provisionerd.AcquiredJob_TemplateImport_{TemplateImport: &provisionerd.AcquiredJob_TemplateImport{}}}
	canceled := make(chan error, 1)
	go func() { canceled <- stream.MsgRecv(&provisionerd.CancelAcquire{}, encoding{}) }()
	var after <-chan time.Time
	switch how {
	case "error":
		return stream.Close()
	case "now":
		after = time.After(0)
	default:
		if wait, err := time.ParseDuration(how); err == nil {
			after = time.After(wait)
		}
	}
	select {
	case err := <-canceled:
		if err != nil {
			return err
		}
		job = &provisionerd.AcquiredJob{}
	case <-after:
	}
	if err := stream.MsgSend(job, encoding{}); err != nil {
		return err
	}
	return stream.Close()
}
