package app

import (
	"fmt"
	"strings"
)

// steps is a configuration of n backends s1 to sn, each with the model m, and a route oai-m over them.
func steps(n int) string {
	var backends, pools strings.Builder
	var list []string
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&backends, "  s%d: {url: \"http://s%d.sim\", tier: gpu}\n", i, i)
		fmt.Fprintf(&pools, "  s%d: {backend: s%d, cap: 8, models: [m]}\n", i, i)
		list = append(list, fmt.Sprintf("s%d/m", i))
	}
	return "backends:\n" + backends.String() + "pools:\n" + pools.String() + "routes:\n  way: {steps: [" + strings.Join(list, ", ") + "]}\naliases: {oai-m: way}\n"
}
