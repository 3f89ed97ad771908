// A share consumer of franz-go that acknowledges each record by its number, its value.
//
//	share BOOTSTRAP TOPIC GROUP COUNT batch_optimized|record_limit
//
// Of three numbers the first is accepted, the second released at its first delivery and then
// accepted, the third rejected. The lock of number 0 is renewed before it is accepted.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	patience = 60 * time.Second
	limit    = 20
)

// The errors of acknowledgements, which a callback gets.
type failures struct {
	sync.Mutex
	found []error
}

func (f *failures) note(_ *kgo.Client, results kgo.ShareAckResults) {
	f.Lock()
	defer f.Unlock()
	for _, result := range results {
		if result.Err != nil {
			f.found = append(f.found, result.Err)
		}
	}
}

func main() {
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	var failed failures
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ShareGroup(os.Args[3]),
		kgo.ShareMaxRecords(limit),
		kgo.ShareAckCallback(failed.note),
	}
	if os.Args[5] == "record_limit" {
		options = append(options, kgo.ShareMaxRecordsStrict())
	}
	client, err := kgo.NewClient(options...)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done, most := map[int]bool{}, 0
	for len(done) < count && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		records := fetches.Records()
		most = max(most, len(records))
		for _, record := range records {
			number, err := strconv.Atoi(string(record.Value))
			check(err)
			deliveries := record.DeliveryCount()
			fmt.Printf("got\t%d\t%d\n", number, deliveries)
			if number == 0 {
				record.Ack(kgo.AckRenew)
				check(client.FlushAcks(ctx))
				fmt.Printf("renewed\t%d\t%d\n", number, deliveries)
			}
			switch {
			case number%3 == 1 && deliveries == 1:
				record.Ack(kgo.AckRelease)
				continue
			case number%3 == 2:
				record.Ack(kgo.AckReject)
			default:
				record.Ack(kgo.AckAccept)
			}
			done[number] = true
		}
		check(client.FlushAcks(ctx))
	}
	client.Close()
	size := "within"
	if most > limit {
		size = strconv.Itoa(most)
	}
	fmt.Printf("end\t%d\t%v\t%s\n", len(done), failed.found, size)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
