// What Flux thinks of a resource: the rules of kstatus, from the library that Flux itself uses.
//
//	kstatus < resources.json    a list of resources; for each a line with its status, a tab, and the sentence
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
	var resources []any // Kubernetes' own reader keeps whole numbers whole in these only
	leave(json.Unmarshal(text, &resources))
	for _, resource := range resources {
		found, err := status.Compute(&unstructured.Unstructured{Object: resource.(map[string]any)})
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
