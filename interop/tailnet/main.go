// Command tailnet is the Go peer of crates/tailnet: the engine that official agents and clients are made of. It has no other
// purpose.
//
//	tailnet capture FOLDER   record the vectors of crates/tailnet/tests/vectors
//	tailnet node             be a node: one JSON command a line on standard input, one JSON answer a line on standard output
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
	case len(os.Args) == 2 && os.Args[1] == "node":
		err = node(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("usage: tailnet capture FOLDER | node")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tailnet:", err)
		os.Exit(1)
	}
}
