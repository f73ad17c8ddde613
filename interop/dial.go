package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"example.org/interop/pb/provisioner"
	"example.org/interop/pb/provisionerd"
	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
	"storj.io/drpc"
	"storj.io/drpc/drpcconn"
	"storj.io/drpc/drpcerr"
)

// daemon is a joined daemon.
type daemon struct {
	conn    *watched
	session *yamux.Session
	socket  *websocket.Conn
	url     string
}

func joinServer(url string) (*daemon, error) {
	ctx := context.Background()
	socket, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		CompressionMode: websocket.CompressionDisabled,
		HTTPHeader:      http.Header{"X-Coder-Build-Version": {"v2.30.0+interop"}},
	})
	if err != nil {
		return nil, err
	}
	socket.SetReadLimit(-1)
	conn := &watched{Conn: websocket.NetConn(ctx, socket, websocket.MessageBinary)}
	session, err := yamux.Client(conn, muxConfig())
	return &daemon{conn: conn, session: session, socket: socket, url: url}, err
}

// call opens a stream for one call, as official daemons do.
func (d *daemon) call() (*drpcconn.Conn, net.Conn, error) {
	stream, err := d.session.Open()
	if err != nil {
		return nil, nil, err
	}
	return drpcconn.New(stream), stream, nil
}

func (d *daemon) unary(rpc string, request, answer drpc.Message) error {
	conn, _, err := d.call()
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Invoke(context.Background(), service+rpc, encoding{}, request, answer)
}

func (d *daemon) stream(rpc string) (drpc.Stream, *drpcconn.Conn, error) {
	conn, _, err := d.call()
	if err != nil {
		return nil, nil, err
	}
	stream, err := conn.NewStream(context.Background(), service+rpc, encoding{})
	return stream, conn, err
}

func (d *daemon) update(id string, readme int) (string, error) {
	answer := &provisionerd.UpdateJobResponse{}
	request := &provisionerd.UpdateJobRequest{JobId: id, Readme: content(readme)}
	if err := d.unary("UpdateJob", request, answer); err != nil {
		return "", err
	}
	return answer.VariableValues[0].Value, nil
}

func dial(url, name string) error {
	name, argument, _ := strings.Cut(name, "=")
	scenario, ok := scenarios[name]
	if !ok {
		return fmt.Errorf("no scenario %q", name)
	}
	d, err := joinServer(url)
	if err != nil {
		return err
	}
	if err := scenario(d, argument); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	// Streams end with the answer of the other side's FIN.
	for deadline := time.Now().Add(10 * time.Second); !d.session.IsClosed() && d.session.NumStreams() > 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d streams are left", d.session.NumStreams())
		}
		time.Sleep(5 * time.Millisecond)
	}
	report(map[string]any{
		"resets_in": d.conn.in.resets.Load(), "resets_out": d.conn.out.resets.Load(),
		"goaways_in": d.conn.in.goaways.Load(), "acks_in": d.conn.in.acks.Load(), "pings_in": d.conn.in.pings.Load(),
	})
	return d.session.Close()
}

var scenarios = map[string]func(*daemon, string) error{
	"unary": func(d *daemon, _ string) error {
		answer := &provisionerd.CommitQuotaResponse{}
		if err := d.unary("CommitQuota", &provisionerd.CommitQuotaRequest{JobId: "j", DailyCost: 9}, answer); err != nil {
			return err
		}
		return want(answer.CreditsConsumed, 9)
	},
	"big": func(d *daemon, argument string) error {
		size, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		got, err := d.update("job", size)
		if err != nil {
			return err
		}
		return want(got, argument)
	},
	"over": func(d *daemon, argument string) error {
		size, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		_, err = d.update("job", size)
		if err == nil || !strings.Contains(err.Error(), "exceeds the limit") {
			return fmt.Errorf("want an error that names the limit, got %v", err)
		}
		_, err = d.update("job", 1)
		return err
	},
	"error": func(d *daemon, _ string) error {
		_, err := d.update("refuse", 0)
		if err == nil || err.Error() != "required template variables: region" || drpcerr.Code(err) != 7 {
			return fmt.Errorf("got %v with code %d", err, drpcerr.Code(err))
		}
		return nil
	},
	"unknown": func(d *daemon, _ string) error {
		err := d.unary("Nope", &provisionerd.Empty{}, &provisionerd.Empty{})
		if err == nil || !strings.HasPrefix(err.Error(), "protocol error") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	},
	"two": func(d *daemon, _ string) error {
		conn, _, err := d.call()
		if err != nil {
			return err
		}
		defer conn.Close()
		for i := int32(1); i <= 2; i++ {
			answer := &provisionerd.CommitQuotaResponse{}
			request := &provisionerd.CommitQuotaRequest{DailyCost: i}
			if err := conn.Invoke(context.Background(), service+"CommitQuota", encoding{}, request, answer); err != nil {
				return err
			}
			if err := want(answer.CreditsConsumed, i); err != nil {
				return err
			}
		}
		return nil
	},
	"acquire": func(d *daemon, wanted string) error {
		stream, conn, err := d.stream("AcquireJobWithCancel")
		if err != nil {
			return err
		}
		defer conn.Close()
		return acquired(stream, wanted)
	},
	"cancel": func(d *daemon, wanted string) error {
		stream, conn, err := d.stream("AcquireJobWithCancel")
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := stream.MsgSend(&provisionerd.CancelAcquire{}, encoding{}); err != nil {
			return err
		}
		return acquired(stream, wanted)
	},
	"leave": func(d *daemon, _ string) error {
		// The call's stream ends without a word, as when an official daemon's context ends.
		stream, conn, err := d.stream("AcquireJobWithCancel")
		if err != nil {
			return err
		}
		go func() { _ = stream.MsgRecv(&provisionerd.AcquiredJob{}, encoding{}) }()
		time.Sleep(50 * time.Millisecond)
		return conn.Close()
	},
	"upload": func(d *daemon, argument string) error {
		size, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		stream, conn, err := d.stream("UploadFile")
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, piece := range pieces(content(size)) {
			if err := stream.MsgSend(piece, encoding{}); err != nil {
				return err
			}
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		return stream.MsgRecv(&provisionerd.Empty{}, encoding{})
	},
	"download": func(d *daemon, argument string) error {
		size, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		data, err := download(d, argument)
		if err != nil {
			return err
		}
		return want(len(data), size)
	},
	"download-missing": func(d *daemon, _ string) error {
		_, err := download(d, "missing")
		if err == nil || err.Error() != "file error: no such file" {
			return fmt.Errorf("got %v", err)
		}
		return nil
	},
	"many": func(d *daemon, argument string) error {
		count, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		for i := 0; i < count; i++ {
			if _, err := d.update("job", 10); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		return nil
	},
	"parallel": func(d *daemon, _ string) error {
		errs := make(chan error)
		for i := 0; i < 10; i++ {
			go func() {
				_, err := d.update("job", 1<<20)
				errs <- err
			}()
		}
		for i := 0; i < 10; i++ {
			if err := <-errs; err != nil {
				return err
			}
		}
		return nil
	},
	"echo": func(d *daemon, argument string) error {
		size, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		errs := make(chan error)
		for i := 0; i < 8; i++ {
			go func() { errs <- echoed(d, content(size)) }()
		}
		for i := 0; i < 8; i++ {
			if err := <-errs; err != nil {
				return err
			}
		}
		return nil
	},
	"full": func(d *daemon, argument string) error {
		// More streams than the other side lets wait: the rest is reset, and those that wait live.
		wanted, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		var streams []net.Conn
		for i := 0; i < 300; i++ {
			stream, err := d.session.Open()
			if err != nil {
				return err
			}
			streams = append(streams, stream)
		}
		if _, err := d.session.Ping(); err != nil {
			return err
		}
		resets := 0
		for _, stream := range streams {
			_ = stream.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := stream.Read(make([]byte, 1)); errors.Is(err, yamux.ErrConnectionReset) {
				resets++
			}
		}
		if err := want(resets, wanted); err != nil {
			return err
		}
		return d.session.Close()
	},
	"goaway": func(d *daemon, _ string) error {
		if err := d.session.GoAway(); err != nil {
			return err
		}
		// What we open is served on.
		if err := echoed(d, content(100000)); err != nil {
			return err
		}
		_, err := d.session.Ping()
		return err
	},
	"ping": func(d *daemon, _ string) error {
		for i := 0; i < 3; i++ {
			if _, err := d.session.Ping(); err != nil {
				return err
			}
		}
		return nil
	},
	"text": func(d *daemon, _ string) error {
		socket, _, err := websocket.Dial(context.Background(), d.url, nil)
		if err != nil {
			return err
		}
		if err := socket.Write(context.Background(), websocket.MessageText, []byte("hello")); err != nil {
			return err
		}
		_, _, err = socket.Read(context.Background())
		return want(int(websocket.CloseStatus(err)), 1003)
	},
	"cut": func(d *daemon, _ string) error {
		stream, _, err := d.stream("AcquireJobWithCancel")
		if err != nil {
			return err
		}
		go func() { _ = stream.MsgRecv(&provisionerd.AcquiredJob{}, encoding{}) }()
		time.Sleep(50 * time.Millisecond)
		runtime.KeepAlive(stream)
		return d.socket.CloseNow()
	},
}

// echoed sends data and reads it back at the same time, with a half close between.
func echoed(d *daemon, data []byte) error {
	stream, err := d.session.Open()
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := stream.Write(data)
		if err == nil {
			err = stream.Close()
		}
		sent <- err
	}()
	got, err := io.ReadAll(stream)
	if err != nil {
		return err
	}
	if err := <-sent; err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("%d bytes came back of %d, or others", len(got), len(data))
	}
	return nil
}

// acquired reads the answer of an acquire and its end: official daemons wait for the latter.
func acquired(stream drpc.Stream, wanted string) error {
	job := &provisionerd.AcquiredJob{}
	err := stream.MsgRecv(job, encoding{})
	if wanted == "error" {
		if err == nil {
			return errors.New("no error")
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := want(job.JobId, wanted); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
		return nil
	case <-time.After(5 * time.Second):
		return errors.New("the call does not end after its answer")
	}
}

func download(d *daemon, id string) ([]byte, error) {
	stream, conn, err := d.stream("DownloadFile")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := stream.MsgSend(&provisionerd.FileRequest{FileId: id}, encoding{}); err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return assemble(func() (*provisioner.FileUpload, error) {
		message := &provisioner.FileUpload{}
		return message, stream.MsgRecv(message, encoding{})
	})
}

func want[T comparable](got, wanted T) error {
	if got != wanted {
		return fmt.Errorf("got %v instead of %v", got, wanted)
	}
	return nil
}
