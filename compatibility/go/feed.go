// Feed ranges, and the change feed in all the ways the client can ask for it.

package main

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var feedChecks = []check{
	{"read feed", "all items, page by page", notOffered},
	{"feed ranges", "they cover the container", rangesCover},
	{"feed ranges", "a key's range is within one of them", notOffered},
	{"change feed", "from the beginning", feedBeginning},
	{"change feed", "from now", notOffered},
	{"change feed", "from a time", feedTime},
	{"change feed", "of one partition key", feedKey},
	{"change feed", "of a hierarchical key and its prefix", feedHierarchical},
	{"change feed", "of one range", rangesCover},
	// A range within one of the server's is read as the whole of that one.
	{"change feed", "of a part of a range", notOffered},
	{"change feed", "page sizes", feedPages},
	{"change feed", "a transaction stays on one page", feedTransactions},
	{"change feed", "resumes after a restart of the server", feedRestart},
	{"change feed", "a split during a read", feedSplit},
	{"change feed", "all versions and deletes", notOffered},
	{"change feed", "all versions: an expired item is a delete", notOffered},
	{"change feed", "all versions only from now or a position", notOffered},
	{"processor", "first generation: every change, over a split", notOffered},
	{"processor", "latest versions: two hosts share the leases", notOffered},
	{"processor", "a host goes on where the last one stopped", notOffered},
	{"processor", "all versions and deletes", notOffered},
}

var everything = azcosmos.FeedRange{MinInclusive: "", MaxExclusive: "FF"}

// feed reads a change feed to its end, and remembers where that was.
type feed struct {
	items
	options azcosmos.ChangeFeedOptions
}

func (i items) feed(options azcosmos.ChangeFeedOptions) *feed {
	if options.FeedRange == nil {
		options.FeedRange = &everything
	}
	return &feed{i, options}
}

func (f *feed) pages() ([][]object, error) {
	pages := [][]object{}
	for {
		response, err := f.container.ReadChangeFeed(f, &f.options)
		if err != nil {
			return nil, err
		}
		f.options.Continuation = &response.ContinuationToken
		if len(response.Items) == 0 {
			return pages, nil
		}
		page := []object{}
		for _, item := range response.Items {
			page = append(page, decode(item))
		}
		pages = append(pages, page)
	}
}

func (f *feed) ids() ([]string, error) {
	pages, err := f.pages()
	ids := []string{}
	for _, page := range pages {
		for _, item := range page {
			ids = append(ids, fmt.Sprint(item["id"]))
		}
	}
	return ids, err
}

func (f *feed) reads(expected []string) error {
	ids, err := f.ids()
	if err != nil {
		return err
	}
	return equal(sorted(ids), expected, "the changes")
}

func rangesCover(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if err := i.fill(0, 20, 7); err != nil {
		return err
	}
	ranges, err := i.container.ReadFeedRanges(r, nil)
	if err != nil {
		return err
	}
	if len(ranges) < 2 {
		return fmt.Errorf("%d ranges", len(ranges))
	}
	feeds := []*feed{}
	for at := range ranges {
		feeds = append(feeds, i.feed(azcosmos.ChangeFeedOptions{FeedRange: &ranges[at]}))
	}
	all := func() ([]string, error) {
		found := []string{}
		for _, each := range feeds {
			ids, err := each.ids()
			if err != nil {
				return nil, err
			}
			if err := equal(ids, sorted(ids), "the order"); err != nil {
				return nil, err
			}
			found = append(found, ids...)
		}
		return sorted(found), nil
	}
	for _, span := range [][2]int{{0, 20}, {20, 30}} {
		if span[0] > 0 {
			if err := i.fill(span[0], span[1], 7); err != nil {
				return err
			}
		}
		found, err := all()
		if err != nil {
			return err
		}
		if err := equal(found, numbers(span[0], span[1]), "the changes"); err != nil {
			return err
		}
	}
	return nil
}

func feedBeginning(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if err := i.fill(0, 20, 7); err != nil {
		return err
	}
	if _, err := i.upsert(object{"id": "19", "pk": "k5", "n": 100}); err != nil {
		return err
	}
	if _, err := i.container.DeleteItem(r, text("k0"), "0", nil); err != nil {
		return err
	}
	changes := i.feed(azcosmos.ChangeFeedOptions{})
	return first(
		func() error { return changes.reads(numbers(1, 20)) },
		func() error { return changes.reads([]string{}) },
		func() error { return i.fill(20, 23, 7) },
		func() error { return changes.reads(numbers(20, 23)) },
	)
}

func feedTime(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if err := i.fill(0, 10, 7); err != nil {
		return err
	}
	time.Sleep(2100 * time.Millisecond)
	middle := time.Now()
	if err := i.fill(10, 20, 7); err != nil {
		return err
	}
	from := func(start time.Time, expected []string) error {
		return i.feed(azcosmos.ChangeFeedOptions{StartFrom: &start}).reads(expected)
	}
	return first(
		func() error { return from(middle, numbers(10, 20)) },
		func() error { return from(middle.Add(time.Hour), []string{}) },
		func() error { return from(middle.Add(-time.Hour), numbers(0, 20)) },
	)
}

func feedKey(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if err := i.fill(0, 21, 7); err != nil {
		return err
	}
	key := text("k3")
	changes := i.feed(azcosmos.ChangeFeedOptions{PartitionKey: &key})
	return first(
		func() error { return changes.reads([]string{"3", "10", "17"}) },
		func() error { return i.fill(21, 28, 7) },
		func() error { return changes.reads([]string{"24"}) },
	)
}

func feedHierarchical(r *run) error {
	i, err := fillTenants(r)
	if err != nil {
		return err
	}
	key := azcosmos.NewPartitionKey().AppendString("t1").AppendString("u1")
	prefix := text("t1")
	return first(
		func() error {
			return i.feed(azcosmos.ChangeFeedOptions{PartitionKey: &key}).reads([]string{"1", "7"})
		},
		func() error {
			return i.feed(azcosmos.ChangeFeedOptions{PartitionKey: &prefix}).reads([]string{"1", "4", "7", "10"})
		},
	)
}

func feedPages(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if err := i.fill(0, 20, 7); err != nil {
		return err
	}
	pages, err := i.feed(azcosmos.ChangeFeedOptions{MaxItemCount: 3}).pages()
	if err != nil {
		return err
	}
	count := 0
	for _, page := range pages {
		count += len(page)
		if len(page) > 3 {
			return fmt.Errorf("a page of %d", len(page))
		}
	}
	return equal(count, 20, "the number of changes")
}

func feedTransactions(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	for number := range 3 {
		batch := i.container.NewTransactionalBatch(text("a"))
		for part := range 5 {
			batch.CreateItem(encode(object{"id": fmt.Sprintf("%d-%d", number, part), "pk": "a"}), nil)
		}
		if _, err := i.container.ExecuteTransactionalBatch(r, batch, nil); err != nil {
			return err
		}
	}
	pages, err := i.feed(azcosmos.ChangeFeedOptions{MaxItemCount: 1}).pages()
	if err != nil {
		return err
	}
	sizes := []int{}
	for _, page := range pages {
		sizes = append(sizes, len(page))
		for _, item := range page {
			if err := equal(item["_lsn"], page[0]["_lsn"], "positions on a page"); err != nil {
				return err
			}
		}
	}
	return equal(sizes, []int{5, 5, 5}, "page sizes")
}

func feedRestart(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	changes := i.feed(azcosmos.ChangeFeedOptions{})
	return first(
		func() error { return i.fill(0, 10, 7) },
		func() error { return changes.reads(numbers(0, 10)) },
		func() error { return i.fill(10, 15, 7) },
		restartServer,
		func() error { return changes.reads(numbers(10, 15)) },
		func() error { return i.fill(15, 20, 7) },
		func() error { return changes.reads(numbers(15, 20)) },
	)
}

func feedSplit(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	changes := i.feed(azcosmos.ChangeFeedOptions{})
	return first(
		func() error { return i.fill(0, 30, 30) },
		func() error { return changes.reads(numbers(0, 30)) },
		func() error { return i.fill(30, 60, 30) },
		func() error { return split(r.databases[0].ID(), "items", "0") },
		func() error { return split(r.databases[0].ID(), "items", "1") },
		func() error { return changes.reads(numbers(30, 60)) },
		func() error { return i.fill(60, 90, 30) },
		func() error { return changes.reads(numbers(60, 90)) },
		func() error { return i.feed(azcosmos.ChangeFeedOptions{}).reads(numbers(0, 90)) },
	)
}
