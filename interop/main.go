// Command interop is the Go peer that the Rust implementation is tested against. It uses the libraries that official
// daemons and servers use, and has no other purpose.
//
//	interop capture FOLDER     record the vectors of crates/wire/tests/vectors
//	interop serve              listen on loopback, print the address, serve daemons until standard input ends
//	interop dial URL SCENARIO  join a server and run one scenario
//	interop agent URL          connect as the agent whose token is in CODER_AGENT_TOKEN
package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "capture":
		err = capture(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = serve()
	case len(os.Args) == 4 && os.Args[1] == "dial":
		err = dial(os.Args[2], os.Args[3])
	case len(os.Args) == 3 && os.Args[1] == "agent":
		err = runAgent(os.Args[2], os.Getenv("CODER_AGENT_TOKEN"))
	default:
		err = fmt.Errorf("usage: interop capture FOLDER | serve | dial URL SCENARIO | agent URL")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}
