package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"example.org/interop/pb/provisioner"
	"example.org/interop/pb/provisionerd"
	"google.golang.org/protobuf/proto"
	"storj.io/drpc"
	"storj.io/drpc/drpcconn"
	"storj.io/drpc/drpcerr"
	"storj.io/drpc/drpcmanager"
	"storj.io/drpc/drpcmetadata"
	"storj.io/drpc/drpcserver"
	"storj.io/drpc/drpcwire"
)

const jobID = "0c8f4d7e-52b1-4b8a-9d65-7f3e1a2b4c6d"

// captureFrames feeds byte strings to the library's reader and notes what it makes of them.
func captureFrames(folder string) error {
	v := newVector("drpc-frames", "drpc reader", "expect: packet(kind,stream,message,control,data) and how the input ended")
	for _, one := range [][2]string{
		{"one frame", "05010102 6869"},
		{"empty message", "05010100"},
		{"packet in three frames", "04010201 68 04010201 69 05010201 6a"},
		{"packet ended by an empty frame", "04010202 6869 05010200"},
		{"unfinished packet dropped by a higher message", "04010103 6f6c64 05010203 6e6577"},
		{"unfinished packet dropped by a higher stream", "04010503 6f6c64 03020104 2f782f79"},
		{"message ids skip", "03010104 2f782f79 05010901 7a"},
		{"large ids and length", "05 ac02 f0a204 c801" + strings.Repeat("72", 200)},
		{"control bit on the last frame", "04010101 61 85010101 62"},
		{"control bit on the first frame", "84010101 61 05010101 62"},
		{"unknown kind with the control bit", "d1010101 7a"},
		{"unknown kind without it", "51010101 7a"},
		{"long numbers", "05 8100 8100 8100 62"},
		{"message goes back", "05010301 61 05010201 62"},
		{"same id again", "05010201 61 05010201 62"},
		{"stream goes back", "03030101 61 05020901 62"},
		{"stream zero", "05000101 61"},
		{"message zero", "05010001 61"},
		{"kind changes", "04010101 61 07010100"},
		{"number longer than ten bytes", "05 80808080808080808080 01 01 00"},
		{"truncated frame", "05010109 616263"},
	} {
		data, err := hex.DecodeString(strings.ReplaceAll(one[1], " ", ""))
		if err != nil {
			return err
		}
		reader := drpcwire.NewReader(strings.NewReader(string(data)))
		var words []string
		for {
			packet, err := reader.ReadPacket()
			if err != nil {
				words = append(words, outcome(err))
				break
			}
			words = append(words, fmt.Sprintf("packet(%d,%d,%d,%v,%x)",
				packet.Kind, packet.ID.Stream, packet.ID.Message, packet.Control, packet.Data))
		}
		fmt.Fprintf(v, "# case: %s\n# expect: %s\n", one[0], strings.Join(words, " "))
		v.line('=', data)
	}
	return v.save(folder)
}

func outcome(err error) string {
	switch text := err.Error(); {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	case strings.Contains(text, "monotonicity") || strings.Contains(text, "zero"):
		return "error(order)"
	case strings.Contains(text, "kind"):
		return "error(kind)"
	default:
		return "error(number)"
	}
}

// captureCalls records whole calls between the library's two ends.
func captureCalls(folder string) error {
	update := &provisionerd.UpdateJobRequest{JobId: jobID}
	answerEmpty := unary(func(*provisionerd.UpdateJobRequest) (*provisionerd.UpdateJobResponse, error) {
		return &provisionerd.UpdateJobResponse{}, nil
	})
	call := func(rpc string, request, answer proto.Message) func(context.Context, *drpcconn.Conn) error {
		return func(ctx context.Context, conn *drpcconn.Conn) error {
			return conn.Invoke(ctx, service+rpc, encoding{}, request, answer)
		}
	}
	updates := call("UpdateJob", update, &provisionerd.UpdateJobResponse{})
	refuse := func(code uint64, text string) func(drpc.Stream) error {
		return unary(func(*provisionerd.UpdateJobRequest) (*provisionerd.UpdateJobResponse, error) {
			return nil, drpcerr.WithCode(errors.New(text), code)
		})
	}
	acquire := func(cancel bool) func(context.Context, *drpcconn.Conn) error {
		return func(ctx context.Context, conn *drpcconn.Conn) error {
			stream, err := conn.NewStream(ctx, service+"AcquireJobWithCancel", encoding{})
			if err != nil {
				return err
			}
			if cancel {
				if err := stream.MsgSend(&provisionerd.CancelAcquire{}, encoding{}); err != nil {
					return err
				}
			}
			err = stream.MsgRecv(&provisionerd.AcquiredJob{}, encoding{})
			if err == nil {
				<-stream.Context().Done()
			}
			return err
		}
	}
	file := []byte("a module archive")
	uploads := func(ctx context.Context, conn *drpcconn.Conn) error {
		stream, err := conn.NewStream(ctx, service+"UploadFile", encoding{})
		if err != nil {
			return err
		}
		for _, piece := range pieces(file) {
			if err := stream.MsgSend(piece, encoding{}); err != nil {
				return err
			}
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		if err := stream.MsgRecv(&provisionerd.Empty{}, encoding{}); err != nil {
			return err
		}
		return stream.Close()
	}
	takeFile := func(stream drpc.Stream) error {
		_, err := assemble(func() (*provisioner.FileUpload, error) {
			message := &provisioner.FileUpload{}
			return message, stream.MsgRecv(message, encoding{})
		})
		return err
	}
	downloads := func(ctx context.Context, conn *drpcconn.Conn) error {
		stream, err := conn.NewStream(ctx, service+"DownloadFile", encoding{})
		if err != nil {
			return err
		}
		if err := stream.MsgSend(&provisionerd.FileRequest{FileId: jobID, UploadType: 1}, encoding{}); err != nil {
			return err
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		_, err = assemble(func() (*provisioner.FileUpload, error) {
			message := &provisioner.FileUpload{}
			return message, stream.MsgRecv(message, encoding{})
		})
		return errors.Join(err, stream.Close())
	}
	sends := func(messages []*provisioner.FileUpload) func(drpc.Stream) error {
		return func(stream drpc.Stream) error {
			if err := stream.MsgRecv(&provisionerd.FileRequest{}, encoding{}); err != nil {
				return err
			}
			for _, message := range messages {
				if err := stream.MsgSend(message, encoding{}); err != nil {
					return err
				}
			}
			return nil
		}
	}
	wait := func(stream drpc.Stream) error {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	leave := func(how func(drpc.Stream, context.CancelFunc) error) func(context.Context, *drpcconn.Conn) error {
		return func(ctx context.Context, conn *drpcconn.Conn) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := conn.NewStream(ctx, service+"AcquireJobWithCancel", encoding{})
			if err != nil {
				return err
			}
			if flusher, ok := stream.(interface{ RawFlush() error }); ok {
				_ = flusher.RawFlush()
			}
			return how(stream, cancel)
		}
	}
	soft := drpcconn.Options{Manager: drpcmanager.Options{SoftCancel: true}}
	for _, one := range []struct {
		name, about string
		handlers    handlers
		client      func(context.Context, *drpcconn.Conn) error
		options     drpcconn.Options
	}{
		{name: "unary-heartbeat", about: "a heartbeat", handlers: handlers{service + "UpdateJob": answerEmpty}, client: updates},
		{name: "unary-heartbeat-canceled", about: "a heartbeat of a canceled job", client: updates,
			handlers: handlers{service + "UpdateJob": unary(func(*provisionerd.UpdateJobRequest) (*provisionerd.UpdateJobResponse, error) {
				return &provisionerd.UpdateJobResponse{Canceled: true}, nil
			})}},
		{name: "unary-commit-quota", about: "a quota that is granted",
			client: call("CommitQuota", &provisionerd.CommitQuotaRequest{JobId: jobID, DailyCost: 31}, &provisionerd.CommitQuotaResponse{}),
			handlers: handlers{service + "CommitQuota": unary(func(*provisionerd.CommitQuotaRequest) (*provisionerd.CommitQuotaResponse, error) {
				return &provisionerd.CommitQuotaResponse{Ok: true, CreditsConsumed: 44, Budget: 90}, nil
			})}},
		{name: "unary-error", about: "a handler's error", handlers: handlers{service + "UpdateJob": refuse(0, "the job belongs to another daemon")}, client: updates},
		{name: "unary-unimplemented", about: "an error with a code", handlers: handlers{service + "UpdateJob": refuse(12, "Unimplemented")}, client: updates},
		{name: "unknown-rpc", about: "a call that is not known", handlers: handlers{}, client: call("Missing", &provisionerd.Empty{}, &provisionerd.Empty{})},
		{name: "unary-split", about: "a request in several frames", handlers: handlers{service + "UpdateJob": answerEmpty},
			client: call("UpdateJob", &provisionerd.UpdateJobRequest{JobId: jobID, Readme: []byte(strings.Repeat("r", 140000))}, &provisionerd.UpdateJobResponse{})},
		{name: "unary-metadata", about: "a call with metadata", handlers: handlers{service + "UpdateJob": answerEmpty},
			client: func(ctx context.Context, conn *drpcconn.Conn) error {
				return updates(drpcmetadata.Add(ctx, "tracestate", "vendor=7"), conn)
			}},
		{name: "unary-closed-without-reply", about: "the handler closes the call", handlers: handlers{service + "UpdateJob": closing}, client: updates},
		{name: "two-calls-one-conn", about: "two calls on one byte stream", handlers: handlers{service + "UpdateJob": answerEmpty},
			client: func(ctx context.Context, conn *drpcconn.Conn) error {
				return errors.Join(updates(ctx, conn), updates(ctx, conn))
			}},
		{name: "acquire-delivered", about: "a job is delivered; the call ends with Close", client: acquire(false),
			handlers: handlers{service + "AcquireJobWithCancel": func(stream drpc.Stream) error { return acquireJob(stream, "now") }}},
		{name: "acquire-canceled", about: "the daemon gives up", client: acquire(true),
			handlers: handlers{service + "AcquireJobWithCancel": func(stream drpc.Stream) error { return acquireJob(stream, "") }}},
		{name: "acquire-error", about: "the handler closes the call before its error", client: acquire(false),
			handlers: handlers{service + "AcquireJobWithCancel": func(stream drpc.Stream) error {
				return errors.Join(stream.Close(), errors.New("never seen"))
			}}},
		{name: "upload-file", about: "a file goes to the server", client: uploads,
			handlers: handlers{service + "UploadFile": func(stream drpc.Stream) error {
				if err := takeFile(stream); err != nil {
					return err
				}
				return stream.MsgSend(&provisionerd.Empty{}, encoding{})
			}}},
		{name: "upload-file-error", about: "the answer precedes the error, so the error is lost", client: uploads,
			handlers: handlers{service + "UploadFile": func(stream drpc.Stream) error {
				for stream.MsgRecv(&provisioner.FileUpload{}, encoding{}) == nil {
				}
				return errors.Join(stream.MsgSend(&provisionerd.Empty{}, encoding{}), stream.CloseSend(), errors.New("never seen"))
			}}},
		{name: "download-file", about: "a file comes from the server", client: downloads, handlers: handlers{service + "DownloadFile": sends(pieces(file))}},
		{name: "download-file-error", about: "there is no such file", client: downloads, handlers: handlers{service + "DownloadFile": sends(
			[]*provisioner.FileUpload{{Type: &provisioner.FileUpload_Error{Error: &provisioner.FailedFile{Error: "the file is gone"}}}})}},
		{name: "stream-client-close", about: "a client that closes a live call", handlers: handlers{service + "AcquireJobWithCancel": wait},
			client: leave(func(stream drpc.Stream, _ context.CancelFunc) error { return stream.Close() })},
		{name: "stream-context-cancel", about: "a client whose context ends", handlers: handlers{service + "AcquireJobWithCancel": wait},
			client: leave(func(stream drpc.Stream, cancel context.CancelFunc) error {
				cancel()
				return stream.MsgRecv(&provisionerd.AcquiredJob{}, encoding{})
			})},
		{name: "soft-cancel", about: "a client that cancels softly", handlers: handlers{service + "AcquireJobWithCancel": wait}, options: soft,
			client: leave(func(stream drpc.Stream, cancel context.CancelFunc) error {
				cancel()
				return stream.MsgRecv(&provisionerd.AcquiredJob{}, encoding{})
			})},
	} {
		tape, client, server := pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = drpcserver.New(one.handlers).ServeOne(context.Background(), server)
		}()
		conn := drpcconn.NewWithOptions(client, one.options)
		err := one.client(context.Background(), conn)
		_ = conn.Close()
		<-done
		closeAll(client, server)
		v := newVector("drpc-"+one.name, "drpc", one.about)
		v.calls(tape)
		fmt.Fprintf(v, "# client-side result: %v\n", err)
		if err := v.save(folder); err != nil {
			return err
		}
	}
	return captureLost(folder)
}

// captureLost records a call whose transport ends under it.
func captureLost(folder string) error {
	tape, client, server := pipe()
	go func() {
		buffer := make([]byte, 4096)
		_, _ = server.Read(buffer)
		_ = server.Close()
	}()
	conn := drpcconn.New(client)
	err := conn.Invoke(context.Background(), service+"UpdateJob", encoding{},
		&provisionerd.UpdateJobRequest{JobId: jobID}, &provisionerd.UpdateJobResponse{})
	closeAll(conn, client, server)
	v := newVector("drpc-unary-transport-eof", "drpc", "the transport ends after the request")
	v.calls(tape)
	fmt.Fprintf(v, "# client-side result: %v\n", err)
	return v.save(folder)
}
