package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"storj.io/drpc/drpcwire"
)

// capture records every vector into a folder.
func capture(folder string) error {
	for _, record := range []func(string) error{captureMessages, captureFrames, captureCalls, captureMux, captureSocket} {
		if err := record(folder); err != nil {
			return err
		}
	}
	return nil
}

// tape is what two ends wrote, in one possible order.
type tape struct {
	mu    sync.Mutex
	items []item
}

type item struct {
	mark byte
	data []byte
}

func (t *tape) add(mark byte, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.items = append(t.items, item{mark, bytes.Clone(data)})
}

// end is one end of a recorded pipe.
type end struct {
	net.Conn
	tape *tape
	mark byte
}

func (e *end) Write(p []byte) (int, error) {
	e.tape.add(e.mark, p)
	return e.Conn.Write(p)
}

// pipe makes a recorded connection: the client's writes are marked >, the server's <.
func pipe() (*tape, *end, *end) {
	client, server := net.Pipe()
	tape := &tape{}
	return tape, &end{client, tape, '>'}, &end{server, tape, '<'}
}

// vector is one file.
type vector struct {
	bytes.Buffer
	name string
}

func newVector(name, layer, about string) *vector {
	v := &vector{name: name}
	fmt.Fprintf(v, "# name: %s\n# layer: %s\n", name, layer)
	fmt.Fprintf(v, "# Captured by `interop capture` from storj.io/drpc v0.0.34, hashicorp/yamux v0.1.2, coder/websocket v1.8.14.\n")
	fmt.Fprintf(v, "# %s\n", about)
	return v
}

func (v *vector) line(mark byte, data []byte) {
	fmt.Fprintf(v, "%c %s\n", mark, packed(data))
}

func (v *vector) save(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, v.name+".hex"), v.Bytes(), 0o644)
}

// packed writes hexadecimal with long runs as 61*1000.
func packed(data []byte) string {
	var out bytes.Buffer
	for start := 0; start < len(data); {
		stop := start + 1
		for stop < len(data) && data[stop] == data[start] {
			stop++
		}
		if stop-start >= 64 {
			if out.Len() > 0 {
				out.WriteByte(' ')
			}
			fmt.Fprintf(&out, "%02x*%d ", data[start], stop-start)
		} else {
			fmt.Fprintf(&out, "%x", data[start:stop])
		}
		start = stop
	}
	return string(bytes.TrimSpace(out.Bytes()))
}

// calls writes a tape of the call layer, each write with its packets.
func (v *vector) calls(t *tape) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, item := range t.items {
		rest := item.data
		for len(rest) > 0 {
			left, frame, ok, err := drpcwire.ParseFrame(rest)
			if err != nil || !ok {
				break
			}
			fmt.Fprintf(v, "# %c %v stream=%d message=%d done=%v control=%v length=%d\n",
				item.mark, frame.Kind, frame.ID.Stream, frame.ID.Message, frame.Done, frame.Control, len(frame.Data))
			rest = left
		}
		v.line(item.mark, item.data)
	}
}

// mux writes a tape of the multiplexer layer.
func (v *vector) mux(t *tape) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kinds := []string{"Data", "WindowUpdate", "Ping", "GoAway"}
	payload := map[byte]bool{}
	for _, item := range t.items {
		if h := item.data; !payload[item.mark] && len(h) == 12 {
			fmt.Fprintf(v, "# %c %s flags=%x stream=%x length=%x\n", item.mark, kinds[h[1]], h[2:4], h[4:8], h[8:12])
			payload[item.mark] = h[1] == 0
		} else {
			payload[item.mark] = false
		}
		v.line(item.mark, item.data)
	}
}

func closeAll(closers ...io.Closer) {
	for _, closer := range closers {
		_ = closer.Close()
	}
}
