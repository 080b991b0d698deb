// CoreDNS with the plugins that the lab's Corefile names, and no others: the full set pulls in the clients of three clouds.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which they see a query. The package's own list names every plugin there is.
	dnsserver.Directives = []string{"bind", "ready", "errors", "hosts", "kubernetes"}
	coremain.Run()
}
