package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"tailscale.com/ipn/ipnstate"
	"tailscale.com/net/dns"
	"tailscale.com/net/netmon"
	"tailscale.com/net/tsdial"
	"tailscale.com/tailcfg"
	"tailscale.com/tsd"
	"tailscale.com/types/key"
	"tailscale.com/types/logger"
	"tailscale.com/types/netmap"
	"tailscale.com/wgengine"
	"tailscale.com/wgengine/filter"
	"tailscale.com/wgengine/netstack"
	"tailscale.com/wgengine/router"
	"tailscale.com/wgengine/wgcfg/nmcfg"
)

type noContext struct{ context.Context }

func (noContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (noContext) Done() <-chan struct{}       { return nil }
func (noContext) Err() error                  { return nil }
func (noContext) Value(any) any               { return nil }

// command is what the test says.
type command struct {
	Do string
	// setup
	Port      int
	WebSocket bool
	Peer      peer
	// dial, udp
	Bytes int
}

// peer is the other side.
type peer struct {
	Key, Disco string
	Address    string
}

// node runs the engine, with an echo service on every TCP port.
func node(input io.Reader, output io.Writer) error {
	logf := logger.Discard
	if os.Getenv("TAILNET_LOG") != "" {
		logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	}
	monitor, err := netmon.New(logf)
	if err != nil {
		return err
	}
	dialer := &tsdial.Dialer{Logf: logf}
	sys := new(tsd.System)
	engine, err := wgengine.NewUserspaceEngine(logf, wgengine.Config{NetMon: monitor, Dialer: dialer, SetSubsystem: sys.Set})
	if err != nil {
		return err
	}
	defer engine.Close()
	magic := sys.MagicSock.Get()
	stack, err := netstack.Create(logf, sys.Tun.Get(), engine, magic, dialer, sys.DNSManager.Get())
	if err != nil {
		return err
	}
	stack.ProcessLocalIPs = true
	stack.GetTCPHandlerForFlow = func(_, _ netip.AddrPort) (func(net.Conn), []tcpip.SettableSocketOption, bool) {
		return echo, nil, true
	}
	if err := stack.Start(nil); err != nil {
		return err
	}
	home := make(chan int, 1)
	engine.SetNetInfoCallback(func(info *tailcfg.NetInfo) {
		select {
		case home <- info.PreferredDERP:
		default:
		}
	})
	private := key.NewNode()
	address := netip.MustParseAddr("fd7a:115c:a1e0:4000:8000:0:0:1")
	answer := func(v any) error {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(output, "%s\n", data)
		return err
	}
	if err := answer(map[string]string{
		"key": private.Public().String(), "disco": engine.DiscoPublicKey().String(), "address": address.String(),
	}); err != nil {
		return err
	}
	var target netip.Addr
	lines := bufio.NewScanner(input)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		began := time.Now()
		var err error
		switch c.Do {
		case "setup":
			target = netip.MustParseAddr(c.Peer.Address)
			magic.SetBlockEndpoints(true)
			magic.SetDERPForceWebsockets(c.WebSocket)
			err = setup(logf, engine, private, address, c)
			if err == nil {
				select {
				case region := <-home:
					if region != 999 {
						err = fmt.Errorf("home region %d", region)
					}
				case <-time.After(30 * time.Second):
					err = fmt.Errorf("no home region")
				}
			}
		case "tsmp":
			err = ping(engine, target, tailcfg.PingTSMP)
		case "disco":
			err = ping(engine, target, tailcfg.PingDisco)
		case "dial":
			err = dial(stack, netip.AddrPortFrom(target, uint16(c.Port)), c.Bytes)
		case "udp":
			err = udp(stack, netip.AddrPortFrom(target, uint16(c.Port)))
		default:
			err = fmt.Errorf("unknown command %q", c.Do)
		}
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if err := answer(map[string]any{"error": problem, "ms": time.Since(began).Milliseconds()}); err != nil {
			return err
		}
	}
	return lines.Err()
}

func setup(logf logger.Logf, engine wgengine.Engine, private key.NodePrivate, address netip.Addr, c command) error {
	var nodeKey key.NodePublic
	if err := nodeKey.UnmarshalText([]byte(c.Peer.Key)); err != nil {
		return err
	}
	var discoKey key.DiscoPublic
	if err := discoKey.UnmarshalText([]byte(c.Peer.Disco)); err != nil {
		return err
	}
	derpMap := &tailcfg.DERPMap{Regions: map[int]*tailcfg.DERPRegion{999: {
		EmbeddedRelay: true, RegionID: 999, RegionCode: "coder", RegionName: "Coder Embedded Relay",
		Nodes: []*tailcfg.DERPNode{{
			Name: "999b", RegionID: 999, HostName: "127.0.0.1", DERPPort: c.Port, STUNPort: -1, ForceHTTP: true,
		}},
	}}}
	own := []netip.Prefix{netip.PrefixFrom(address, 128)}
	theirs := []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(c.Peer.Address), 128)}
	network := &netmap.NetworkMap{
		NodeKey: private.Public(), PrivateKey: private, Addresses: own, DERPMap: derpMap,
		SelfNode: &tailcfg.Node{ID: 1, Key: private.Public(), Addresses: own, AllowedIPs: own},
		Peers: []*tailcfg.Node{{
			ID: 2, Name: "peer", Key: nodeKey, DiscoKey: discoKey, Addresses: theirs, AllowedIPs: theirs,
			DERP: "127.3.3.40:999", Created: time.Now(), Hostinfo: (&tailcfg.Hostinfo{}).View(),
		}},
	}
	engine.SetDERPMap(derpMap)
	engine.SetNetworkMap(network)
	config, err := nmcfg.WGCfg(network, logf, netmap.AllowSingleHosts, "")
	if err != nil {
		return err
	}
	if err := engine.Reconfig(config, &router.Config{LocalAddrs: own}, &dns.Config{}, &tailcfg.Debug{}); err != nil {
		return err
	}
	engine.SetFilter(filter.NewAllowAllForTest(logf))
	return nil
}

func ping(engine wgengine.Engine, target netip.Addr, kind tailcfg.PingType) error {
	// As official clients do: again and again, until the tunnel is there.
	for range 30 {
		answered := make(chan *ipnstate.PingResult, 1)
		engine.Ping(target, kind, func(result *ipnstate.PingResult) { answered <- result })
		select {
		case result := <-answered:
			if result.Err == "" {
				return nil
			}
			return fmt.Errorf("ping: %s", result.Err)
		case <-time.After(time.Second):
		}
	}
	return fmt.Errorf("no pong")
}

// dial sends bytes to an echo service, closes its half, and reads all of them back.
func dial(stack *netstack.Impl, to netip.AddrPort, size int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := stack.DialContextTCP(ctx, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	failed := make(chan error, 1)
	go func() {
		block := make([]byte, 32<<10)
		for sent := 0; sent < size; sent += len(block) {
			block = block[:min(len(block), size-sent)]
			for i := range block {
				block[i] = byte((sent + i) % 251)
			}
			if _, err := conn.Write(block); err != nil {
				failed <- err
				return
			}
		}
		failed <- conn.CloseWrite()
	}()
	got, block := 0, make([]byte, 64<<10)
	for {
		count, err := conn.Read(block)
		for i := range block[:count] {
			if block[i] != byte((got+i)%251) {
				return fmt.Errorf("byte %d differs", got+i)
			}
		}
		got += count
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := <-failed; err != nil {
		return err
	}
	if got != size {
		return fmt.Errorf("%d of %d bytes came back", got, size)
	}
	return nil
}

func udp(stack *netstack.Impl, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := stack.DialContextUDP(ctx, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("datagram")); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	block := make([]byte, 1500)
	count, err := conn.Read(block)
	if err != nil {
		return err
	}
	if string(block[:count]) != "datagram" {
		return fmt.Errorf("%q came back", block[:count])
	}
	return nil
}

func echo(conn net.Conn) {
	defer conn.Close()
	_, _ = io.Copy(conn, conn)
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
