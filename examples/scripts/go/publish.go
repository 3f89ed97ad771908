// Append a record and write a key of your own in one step, from Go.
//
//	korvet functions load --redis redis://localhost:6379
//	go run . redis://localhost:6379 orders ann "3 cups"
//
// Prints the record's partition and offset. The hash counts the orders of each customer.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx, topic, key, value := context.Background(), os.Args[2], os.Args[3], os.Args[4]
	options, err := redis.ParseURL(os.Args[1])
	check(err)
	client := redis.NewClient(options)
	text, err := client.HGet(ctx, "korvet:topics", topic).Bytes()
	check(err)
	var definition struct{ Partitions int }
	check(json.Unmarshal(text, &definition))
	number, err := client.FCall(ctx, "korvet_partition_of", nil, key, definition.Partitions).Int()
	check(err)
	stream := fmt.Sprintf("korvet:%s:%d", topic, number)
	keys := []string{stream}
	for _, end := range []string{"log", "index", "producers", "open_txns"} {
		keys = append(keys, fmt.Sprintf("{%s}:%s", stream, end))
	}
	var offset *redis.Cmd
	_, err = client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		offset = pipe.FCall(ctx, "korvet_append", keys, "", 0, 4, "key", key, "value", value)
		return pipe.HIncrBy(ctx, "{"+stream+"}:customers", key, 1).Err()
	})
	check(err)
	fmt.Printf("%d\t%v\n", number, offset.Val())
}
