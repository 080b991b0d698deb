// The lab's pause image: holds a pod's namespaces until it is told to end. In pods of the tests it also looks at the network from inside:
//
//	pause                  wait
//	pause resolve NAME     the addresses of a name, one a line
//	pause connect ADDRESS  "connected" once host:port accepts
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
