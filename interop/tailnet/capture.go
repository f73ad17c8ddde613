package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go4.org/mem"
	"tailscale.com/derp"
	"tailscale.com/disco"
	"tailscale.com/net/packet"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/types/logger"
)

// vector is one file: comments, and lines of a direction ('>' client, '<' server, '=' stand-alone).
type vector struct {
	mu    sync.Mutex
	lines []string
}

func (v *vector) comment(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines = append(v.lines, "# "+fmt.Sprintf(format, args...))
}

func (v *vector) bytes(direction string, data []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines = append(v.lines, direction+" "+hex.EncodeToString(data))
}

func (v *vector) write(folder, name string) error {
	text := strings.Join(v.lines, "\n") + "\n"
	return os.WriteFile(filepath.Join(folder, name+".hex"), []byte(text), 0o644)
}

// recorder notes what is written to a connection.
type recorder struct {
	net.Conn
	vector    *vector
	direction string
}

func (r recorder) Write(data []byte) (int, error) {
	r.vector.bytes(r.direction, data)
	return r.Conn.Write(data)
}

func nodeKey(seed byte) key.NodePrivate {
	var raw [32]byte
	for i := range raw {
		raw[i] = seed
	}
	return key.NodePrivateFromRaw32(mem.B(raw[:]))
}

func text(v any) string {
	data, err := v.(interface{ MarshalText() ([]byte, error) }).MarshalText()
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func capture(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, record := range map[string]func(*vector) error{
		"keys": captureKeys, "disco": captureDisco, "tsmp": captureTSMP, "derp-session": captureDERP, "derp-map": captureMap,
	} {
		v := new(vector)
		v.comment("recorded by interop/tailnet from the engine of v2.30; all keys are invented")
		if err := record(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := v.write(folder, name); err != nil {
			return err
		}
	}
	return nil
}

func captureKeys(v *vector) error {
	for _, seed := range []byte{1, 2, 0x42} {
		private := nodeKey(seed)
		public := private.Public()
		binary, err := public.MarshalBinary()
		if err != nil {
			return err
		}
		v.comment("private %s, text %s; its binary form:", strings.Repeat(fmt.Sprintf("%02x", seed), 32), text(public))
		v.bytes("=", binary)
	}
	return nil
}

func captureDisco(v *vector) error {
	var transaction [12]byte
	copy(transaction[:], "transaction!")
	ping := &disco.Ping{TxID: transaction, NodeKey: nodeKey(1).Public()}
	v.comment("ping of %s", text(ping.NodeKey))
	v.bytes("=", ping.AppendMarshal(nil))
	pong := &disco.Pong{TxID: transaction, Src: netip.MustParseAddrPort("127.3.3.40:999")}
	v.comment("pong to the same, through the relay of region 999")
	v.bytes("=", pong.AppendMarshal(nil))
	v.comment("call me maybe")
	v.bytes("=", (&disco.CallMeMaybe{MyNumber: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:41641")}}).AppendMarshal(nil))
	return nil
}

func captureTSMP(v *vector) error {
	header := packet.IP6Header{
		IPProto: 99,
		Src:     netip.MustParseAddr("fd7a:115c:a1e0::1"),
		Dst:     netip.MustParseAddr("fd7a:115c:a1e0::2"),
	}
	v.comment("pong with the data 0102030405060708: the payload, then the packet from fd7a:115c:a1e0::1 to ::2")
	pong := packet.TSMPPongReply{IPHeader: &header, Data: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}}
	whole := packet.Generate(pong, nil)
	v.bytes("=", whole[len(whole)-11:])
	v.bytes("=", whole)
	return nil
}

func captureDERP(v *vector) error {
	v.comment("relay 01.., client 02.. (private keys of one byte); boxes have random nonces")
	server := derp.NewServer(nodeKey(1), logger.Discard)
	open := func(seed byte, noted *vector) (*derp.Client, error) {
		near, far := net.Pipe()
		to := recorder{near, noted, ">"}
		from := recorder{far, noted, "<"}
		accepted := bufio.NewReadWriter(bufio.NewReader(from), bufio.NewWriter(from))
		go server.Accept(noContext{}, from, accepted, "test")
		dialled := bufio.NewReadWriter(bufio.NewReader(to), bufio.NewWriter(to))
		return derp.NewClient(nodeKey(seed), to, dialled, logger.Discard, derp.CanAckPings(true))
	}
	first, err := open(2, v)
	if err != nil {
		return err
	}
	if _, err := first.Recv(); err != nil {
		return err
	}
	second, err := open(3, new(vector))
	if err != nil {
		return err
	}
	if _, err := second.Recv(); err != nil {
		return err
	}
	v.comment("note preferred, a packet to 03.., a ping")
	if err := first.NotePreferred(true); err != nil {
		return err
	}
	if err := first.Send(nodeKey(3).Public(), []byte("hello")); err != nil {
		return err
	}
	if _, err := second.Recv(); err != nil {
		return err
	}
	if err := second.Send(nodeKey(2).Public(), []byte("answer")); err != nil {
		return err
	}
	v.comment("a packet from 03..")
	if _, err := first.Recv(); err != nil {
		return err
	}
	if err := first.SendPing([8]byte{1, 2, 3, 4, 5, 6, 7, 8}); err != nil {
		return err
	}
	if _, err := first.Recv(); err != nil {
		return err
	}
	v.comment("a packet to 04.., which is not here, and a pong; then the relay closes, 03.. first")
	if err := first.Send(nodeKey(4).Public(), []byte("nobody")); err != nil {
		return err
	}
	if err := first.SendPong([8]byte{8, 7, 6, 5, 4, 3, 2, 1}); err != nil {
		return err
	}
	// Nothing is told of a pong.
	time.Sleep(300 * time.Millisecond)
	return server.Close()
}

func captureMap(v *vector) error {
	m := &tailcfg.DERPMap{
		HomeParams: &tailcfg.DERPHomeParams{RegionScore: map[int]float64{999: 1.5}},
		Regions: map[int]*tailcfg.DERPRegion{999: {
			EmbeddedRelay: true, RegionID: 999, RegionCode: "coder", RegionName: "Coder Embedded Relay",
			Nodes: []*tailcfg.DERPNode{{
				Name: "999b", RegionID: 999, HostName: "coder.example.com", CertName: "c", IPv4: "10.0.0.1", IPv6: "fd00::1",
				STUNPort: -1, STUNOnly: true, DERPPort: 443, InsecureForTests: true, ForceHTTP: true, STUNTestIP: "127.0.0.1",
				CanPort80: true,
			}},
		}},
		OmitDefaultRegions: true,
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	v.comment("every field set; JSON text")
	v.bytes("=", data)
	return nil
}
