// A consumer of franz-go that reads partition 0 from the beginning: lost BOOTSTRAP TOPIC
//
// Prints the value of each record. Ends with "lost", the position and the offset at which the log
// and the records that were read differ.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 5 * time.Minute

func main() {
	start := map[string]map[int32]kgo.Offset{os.Args[2]: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ConsumePartitions(start),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.MetadataMinAge(100*time.Millisecond),
	)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, failure := range fetches.Errors() {
			var lost *kgo.ErrDataLoss
			if errors.As(failure.Err, &lost) {
				fmt.Println("lost", lost.ConsumedTo, lost.ResetTo)
				return
			}
			// The topic was created again: it is read no more.
			if errors.Is(failure.Err, kerr.UnknownTopicID) {
				fmt.Println(failure.Err)
				return
			}
		}
		fetches.EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
	}
}
