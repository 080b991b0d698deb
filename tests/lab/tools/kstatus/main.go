// The rules by which Flux (and kpt, Config Sync, `kubectl wait` of their like) tells whether a resource is as declared: Flux's own library.
//
//	kstatus < resources.json    a list of resources; one line for each: its status, a tab, the sentence
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	var resources []map[string]any
	leave(json.NewDecoder(os.Stdin).Decode(&resources))
	for _, resource := range resources {
		found, err := status.Compute(&unstructured.Unstructured{Object: resource})
		leave(err)
		fmt.Printf("%s\t%s\n", found.Status, found.Message)
	}
}

func leave(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
