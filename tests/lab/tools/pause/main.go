// The lab's pause image: keeps a pod's namespaces until it receives a signal. In pods of the tests it also tests the network:
//
//	pause                  wait
//	pause resolve NAME     prints the addresses of a name, one per line
//	pause connect ADDRESS  prints "connected" if host:port accepts a connection
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	switch strings.Join(os.Args[1:min(2, len(os.Args))], "") {
	case "":
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("waiting")
		<-stop
	case "resolve":
		addresses, err := net.LookupHost(os.Args[2])
		leave(err)
		fmt.Println(strings.Join(addresses, "\n"))
	case "connect":
		_, err := net.DialTimeout("tcp", os.Args[2], 3*time.Second)
		leave(err)
		fmt.Println("connected")
	}
}

func leave(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
