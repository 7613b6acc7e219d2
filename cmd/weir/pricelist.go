package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/internal/config"
)

// offer is what one vendor asks for one model.
type offer struct {
	name   string // as the file calls it: vendor and model
	id     string // of the model
	vendor string
	host   string // of the vendor's API, where the file names it
	price  config.Price
	dearer bool // long prompts cost more than price says
}

// priceList is what a public price file says.
type priceList struct {
	form   string // LiteLLM or models.dev
	offers []offer
}

// object is a JSON object whose values are not read yet.
type object = map[string]json.RawMessage

// maxPriceFile bounds a price file; the public ones have a few MB.
const maxPriceFile = 64 << 20

// readPriceList reads either public form, which it tells by itself. Whatever is odd within it is left out: prices that
// are no number, negative or absurd count as not told.
func readPriceList(r io.Reader) (*priceList, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPriceFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPriceFile {
		return nil, fmt.Errorf("is larger than %s", config.Bytes(maxPriceFile))
	}
	top, err := objectOf(data)
	if err != nil {
		return nil, err
	}
	list := &priceList{form: "LiteLLM"}
	var other priceList
	for _, name := range slices.Sorted(maps.Keys(top)) {
		entry, err := objectOf(top[name])
		if err != nil {
			continue
		}
		if models, err := objectOf(entry["models"]); err == nil {
			other.offers = append(other.offers, ofVendor(name, entry, models)...)
		} else if o, ok := ofRecord(name, entry); ok {
			list.offers = append(list.offers, o)
		}
	}
	if len(other.offers) > len(list.offers) {
		list.form, list.offers = "models.dev", other.offers
	}
	if len(list.offers) == 0 {
		return nil, errors.New("holds no prices in a form that is known: LiteLLM's model_prices_and_context_window.json, or the api.json of models.dev")
	}
	return list, nil
}

// objectOf reads a JSON object.
func objectOf(data []byte) (o object, err error) {
	if len(data) == 0 {
		return nil, errors.New("is not there")
	}
	if err = json.Unmarshal(data, &o); err == nil && o == nil {
		err = errors.New("is null")
	}
	return o, err
}

// textOf returns a JSON text, empty for anything else.
func textOf(data json.RawMessage) (s string) {
	_ = json.Unmarshal(data, &s)
	return s
}

// ofRecord reads one record of LiteLLM's file: USD per token.
func ofRecord(name string, entry object) (offer, bool) {
	const perToken = 6 // decimal places to a million tokens
	o := offer{name: name, id: name, vendor: textOf(entry["litellm_provider"])}
	if first, _, ok := strings.Cut(name, "/"); ok && o.vendor == "" {
		o.vendor = first
	}
	o.price = config.Price{
		In: amount(entry["input_cost_per_token"], perToken), Out: amount(entry["output_cost_per_token"], perToken),
		Cached: amount(entry["cache_read_input_token_cost"], perToken), Written: amount(entry["cache_creation_input_token_cost"], perToken),
	}
	for key := range entry {
		o.dearer = o.dearer || strings.HasPrefix(key, "input_cost_per_token_above_")
	}
	return o, name != "sample_spec" && isTold(o.price)
}

// ofVendor reads one vendor of the file of models.dev: USD per million tokens.
func ofVendor(name string, entry, models object) (offers []offer) {
	host := ""
	if u, err := url.Parse(textOf(entry["api"])); err == nil {
		host = strings.ToLower(u.Hostname())
	}
	for _, id := range slices.Sorted(maps.Keys(models)) {
		model, err := objectOf(models[id])
		if err != nil {
			continue
		}
		cost, err := objectOf(model["cost"])
		if err != nil {
			continue
		}
		o := offer{name: name + "/" + id, id: id, vendor: name, host: host, price: config.Price{
			In: amount(cost["input"], 0), Out: amount(cost["output"], 0), Cached: amount(cost["cache_read"], 0), Written: amount(cost["cache_write"], 0),
		}}
		o.dearer = len(cost["tiers"]) > 0 || len(cost["context_over_200k"]) > 0
		if isTold(o.price) {
			offers = append(offers, o)
		}
	}
	return offers
}

// isTold reports whether a price says anything.
func isTold(p config.Price) bool { return p.In != nil || p.Out != nil }

// numberForm is a JSON number that can be a price.
var numberForm = regexp.MustCompile(`^([0-9]{1,40})(?:\.([0-9]{1,60}))?(?:[eE]([-+]?[0-9]{1,3}))?$`)

// mostUSD bounds the price of a million tokens: what is above is a mistake of the file.
const mostUSD = 1_000_000 * config.Nanos

// amount reads a price and moves its point by so many places, digit by digit: a float would not keep 3e-07. It is rounded
// to nano-dollars, never to zero. Nil is no price.
func amount(data json.RawMessage, places int) *config.USD {
	text := string(data)
	if s := textOf(data); s != "" {
		text = s // some records write their numbers as text
	}
	m := numberForm.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	exp, _ := strconv.Atoi(m[3])
	digits := strings.TrimLeft(m[1]+m[2], "0")
	places += exp - len(m[2]) + 9 // of digits, as nano-dollars
	whole, part := digits, ""
	switch {
	case digits == "":
	case len(digits)+places > 18:
		return nil
	case places >= 0:
		whole += strings.Repeat("0", places)
	default:
		at := max(len(digits)+places, 0)
		whole = digits[:at]
		if at > 0 || len(digits)+places == 0 {
			part = digits[at:]
		}
	}
	n, err := strconv.ParseInt("0"+whole, 10, 64)
	if err != nil || n > mostUSD {
		return nil
	}
	if part != "" && part[0] >= '5' && n < math.MaxInt64 {
		n++
	}
	if n == 0 && digits != "" {
		n = 1
	}
	u := config.USD(n)
	return &u
}
