package main

import (
	"math"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

// named is one AMQP value with the name of its check. Go's types stand for AMQP's: uint8 is ubyte, int64 is long.
type named struct {
	name  string
	value any
}

var (
	someUUID   = amqp.UUID{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}
	longString = strings.Repeat("ü€😀", 5000)
	longBinary = []byte(strings.Repeat("binary\x00\xff", 9000))
)

// simpleValues are those that application-properties may hold (part 3.2.5).
var simpleValues = []named{
	{"boolean true", true},
	{"boolean false", false},
	{"ubyte 0", uint8(0)},
	{"ubyte max", uint8(math.MaxUint8)},
	{"ushort max", uint16(math.MaxUint16)},
	{"uint 0", uint32(0)},
	{"uint small", uint32(255)},
	{"uint max", uint32(math.MaxUint32)},
	{"ulong 0", uint64(0)},
	{"ulong small", uint64(255)},
	{"ulong max", uint64(math.MaxUint64)},
	{"byte min", int8(math.MinInt8)},
	{"byte max", int8(math.MaxInt8)},
	{"short min", int16(math.MinInt16)},
	{"short max", int16(math.MaxInt16)},
	{"int min", int32(math.MinInt32)},
	{"int small", int32(-1)},
	{"int max", int32(math.MaxInt32)},
	{"long min", int64(math.MinInt64)},
	{"long small", int64(-1)},
	{"long max", int64(math.MaxInt64)},
	{"float", float32(1.5)},
	{"float infinity", float32(math.Inf(1))},
	{"double", 0.1},
	{"double smallest", math.SmallestNonzeroFloat64},
	{"double negative infinity", math.Inf(-1)},
	{"timestamp 0", time.UnixMilli(0).UTC()},
	{"timestamp before 1970", time.UnixMilli(-1_000_000_000_000).UTC()},
	{"timestamp", time.UnixMilli(1_700_000_000_123).UTC()},
	{"uuid", someUUID},
	{"binary empty", []byte{}},
	{"binary short", []byte{0x00, 0xff, 0x80}},
	{"binary long", longBinary},
	{"string empty", ""},
	{"string short", "grüße"},
	{"string long", longString},
	{"symbol short", amqp.Symbol("amqp:symbol")},
	{"symbol long", amqp.Symbol(strings.Repeat("s", 1000))},
}

var compoundValues = []named{
	{"list empty", []any{}},
	{"list mixed", []any{nil, true, uint8(7), "text", amqp.Symbol("sym"), []any{uint32(1), []any{}}}},
	{"list of 300", manyLongs()},
	{"map empty", map[string]any{}},
	{"map with string keys", map[string]any{"a": int64(1), "b": amqp.Symbol("s"), "c": nil}},
	{"map with keys of several types", map[any]any{uint64(3): "x", true: "y", "s": []any{"z"}}},
	{"array of ushort", []uint16{0, math.MaxUint16}},
	{"array of uint", []uint32{0, math.MaxUint32}},
	{"array of ulong", []uint64{0, math.MaxUint64}},
	{"array of byte", []int8{math.MinInt8, math.MaxInt8}},
	{"array of short", []int16{math.MinInt16, math.MaxInt16}},
	{"array of int", []int32{math.MinInt32, math.MaxInt32}},
	{"array of long", []int64{math.MinInt64, math.MaxInt64}},
	{"array of float", []float32{1.5, -2.5}},
	{"array of double", []float64{0.1, math.MaxFloat64}},
	{"array of boolean", []bool{true, false, true}},
	{"array of timestamp", []time.Time{time.UnixMilli(0).UTC(), time.UnixMilli(1_700_000_000_123).UTC()}},
	{"array of uuid", []amqp.UUID{someUUID, {}}},
	{"array of binary", [][]byte{{}, {1, 2}, longBinary}},
	{"array of string", []string{"", "x", longString}},
	{"array of symbol", []amqp.Symbol{"a", amqp.Symbol(strings.Repeat("b", 300))}},
}

func manyLongs() []any {
	list := make([]any, 300)
	for n := range list {
		list[n] = int64(n)
	}
	return list
}
