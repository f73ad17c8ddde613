package main

import (
	"io"
	"os"

	"github.com/hashicorp/yamux"
	"google.golang.org/protobuf/proto"
	"storj.io/drpc"
)

const service = "/provisionerd.ProvisionerDaemon/"

// encoding is how the generated stubs of official peers encode messages.
type encoding struct{}

func (encoding) Marshal(msg drpc.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(msg.(proto.Message))
}

func (encoding) Unmarshal(buf []byte, msg drpc.Message) error {
	return proto.Unmarshal(buf, msg.(proto.Message))
}

// handlers answers calls by name.
type handlers map[string]func(drpc.Stream) error

func (h handlers) HandleRPC(stream drpc.Stream, rpc string) error {
	handler, ok := h[rpc]
	if !ok {
		return drpc.ProtocolError.New("unknown rpc: %q", rpc)
	}
	return handler(stream)
}

// unary makes a handler of one request and one answer.
func unary[Q any, A any, PQ interface {
	*Q
	proto.Message
}, PA interface {
	*A
	proto.Message
}](handle func(PQ) (PA, error)) func(drpc.Stream) error {
	return func(stream drpc.Stream) error {
		var request PQ = new(Q)
		if err := stream.MsgRecv(request, encoding{}); err != nil {
			return err
		}
		answer, err := handle(request)
		if err != nil {
			return err
		}
		return stream.MsgSend(answer, encoding{})
	}
}

// closing ends a call without an answer and without an error.
func closing(stream drpc.Stream) error {
	return stream.Close()
}

// muxConfig is the library's default without its log.
func muxConfig() *yamux.Config {
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	if os.Getenv("INTEROP_LOG") != "" {
		config.LogOutput = os.Stderr
	}
	return config
}
