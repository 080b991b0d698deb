// CoreDNS with only the plugins in the lab's Corefile: the full set depends on the clients of three clouds.
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
	// The order in which plugins handle a query. The package's own list contains all plugins.
	dnsserver.Directives = []string{"bind", "ready", "errors", "hosts", "kubernetes"}
	coremain.Run()
}
