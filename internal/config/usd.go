package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// USD is an amount of money in nano-dollars, written in dollars: 5, 0.40 or 0.000000001. It is exact.
type USD int64

// Nanos is how many nano-dollars a dollar has.
const Nanos = 1_000_000_000

var usdForm = regexp.MustCompile(`^([0-9]{1,9})(?:\.([0-9]{1,9}))?$`)

// ParseUSD reads an amount in dollars with at most nine decimals. It never rounds.
func ParseUSD(text string) (USD, error) {
	m := usdForm.FindStringSubmatch(text)
	if m == nil {
		return 0, errors.New("must be an amount in USD such as 5 or 0.40, with at most nine decimals, without a sign or currency")
	}
	whole, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0, err
	}
	part, err := strconv.ParseInt((m[2] + "000000000")[:9], 10, 64)
	if err != nil || whole > math.MaxInt64/Nanos-1 {
		return 0, fmt.Errorf("is larger than any amount")
	}
	return USD(whole*Nanos + part), nil
}

// String writes the amount in dollars, exactly. ParseUSD reads it back.
func (u USD) String() string {
	sign, n := "", uint64(u)
	if u < 0 {
		sign, n = "-", -uint64(u)
	}
	text := sign + strconv.FormatUint(n/Nanos, 10)
	if n %= Nanos; n > 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%09d", n), "0")
	}
	return text
}

// usd decodes an amount.
func (d *decoder) usd(n *yaml.Node, v reflect.Value, p *path) {
	got, err := ParseUSD(n.Value)
	if err != nil {
		d.add(p, err.Error(), "")
		return
	}
	v.SetInt(int64(got))
}
