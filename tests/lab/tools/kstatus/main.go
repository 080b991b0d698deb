// The health of resources according to kstatus, computed by the library that Flux uses.
//
//	kstatus < resources.json    reads a list of resources; prints a line for each: its status, a tab, and the message
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	leave(err)
	var resources []any // only for this type does Kubernetes' decoder return integers as int64
	leave(json.Unmarshal(text, &resources))
	for _, resource := range resources {
		result, err := status.Compute(&unstructured.Unstructured{Object: resource.(map[string]any)})
		leave(err)
		fmt.Printf("%s\t%s\n", result.Status, result.Message)
	}
}

func leave(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
