package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"example.org/interop/pb/provisionerd"
	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
	"storj.io/drpc"
	"storj.io/drpc/drpcconn"
	"storj.io/drpc/drpcserver"
)

// captureMux records sessions of the multiplexer.
func captureMux(folder string) error {
	update := func(readme int) func(*yamux.Session) error {
		return func(session *yamux.Session) error {
			stream, err := session.Open()
			if err != nil {
				return err
			}
			conn := drpcconn.New(stream)
			defer conn.Close()
			request := &provisionerd.UpdateJobRequest{JobId: jobID, Readme: make([]byte, readme)}
			return conn.Invoke(context.Background(), service+"UpdateJob", encoding{}, request, &provisionerd.UpdateJobResponse{})
		}
	}
	known := handlers{
		service + "UpdateJob": unary(func(*provisionerd.UpdateJobRequest) (*provisionerd.UpdateJobResponse, error) {
			return &provisionerd.UpdateJobResponse{}, nil
		}),
		service + "AcquireJobWithCancel": func(stream drpc.Stream) error { return acquireJob(stream, "now") },
	}
	for _, one := range []struct {
		name, about string
		client      func(*yamux.Session) error
		server      func(*yamux.Session)
	}{
		{name: "unary", about: "one unary call", client: update(0)},
		{name: "two-unary", about: "two unary calls, each on its own stream", client: func(session *yamux.Session) error {
			if err := update(0)(session); err != nil {
				return err
			}
			return update(0)(session)
		}},
		{name: "window", about: "a request longer than the window", client: update(310000)},
		{name: "acquire-delivered", about: "a job is delivered", client: func(session *yamux.Session) error {
			stream, err := session.Open()
			if err != nil {
				return err
			}
			conn := drpcconn.New(stream)
			defer conn.Close()
			call, err := conn.NewStream(context.Background(), service+"AcquireJobWithCancel", encoding{})
			if err != nil {
				return err
			}
			return acquired(call, "5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10")
		}},
		{name: "ping", about: "a ping of the client", client: func(session *yamux.Session) error {
			_, err := session.Ping()
			return err
		}},
		{name: "goaway", about: "the server takes no further streams", server: func(session *yamux.Session) { _ = session.GoAway() },
			client: func(session *yamux.Session) error {
				time.Sleep(50 * time.Millisecond)
				_, err := session.Open()
				return err
			}},
	} {
		tape, near, far := pipe()
		server, err := yamux.Server(far, muxConfig())
		if err != nil {
			return err
		}
		go func() { _ = serveSession(context.Background(), server, drpcserver.New(known)) }()
		client, err := yamux.Client(near, muxConfig())
		if err != nil {
			return err
		}
		if one.server != nil {
			one.server(server)
		}
		result := one.client(client)
		for client.NumStreams() > 0 {
			time.Sleep(time.Millisecond)
		}
		closeAll(client, server)
		v := newVector("yamux-"+one.name, "yamux", one.about)
		v.mux(tape)
		fmt.Fprintf(v, "# client-side result: %v\n", result)
		if err := v.save(folder); err != nil {
			return err
		}
	}
	return nil
}

// heard records what a connection reads as well.
type heard struct {
	end
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 {
		h.tape.add('<', p[:n])
	}
	return n, err
}

// captureSocket records the bytes of a TCP connection: upgrade, one call, close. The client's masks are random.
func captureSocket(folder string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	server := &http.Server{Handler: http.HandlerFunc(join)}
	go func() { _ = server.Serve(listener) }()
	record := &tape{}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &heard{end{conn, record, '>'}}, err
	}}
	ctx := context.Background()
	url := "ws://" + listener.Addr().String() + "/api/v2/organizations/default/provisionerdaemons/serve?name=rig-7&provisioner=terraform&version=1.14"
	socket, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		CompressionMode: websocket.CompressionDisabled,
		HTTPClient:      &http.Client{Transport: transport},
	})
	if err != nil {
		return err
	}
	session, err := yamux.Client(websocket.NetConn(ctx, socket, websocket.MessageBinary), muxConfig())
	if err != nil {
		return err
	}
	d := &daemon{session: session}
	result := scenarios["unary"](d, "")
	for session.NumStreams() > 0 {
		time.Sleep(time.Millisecond)
	}
	_ = session.Close()
	time.Sleep(50 * time.Millisecond)
	v := newVector("ws-session", "tcp", "upgrade, one call and close, as bytes of TCP; masks and key are random")
	record.mu.Lock()
	defer record.mu.Unlock()
	for _, item := range record.items {
		v.line(item.mark, item.data)
	}
	fmt.Fprintf(v, "# client-side result: %v\n", result)
	return v.save(folder)
}
