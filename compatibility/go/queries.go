// Queries beyond a filter: what several partitions have to be merged for, and how a query goes on. The client sends
// every query as it is, so all of the merging is the server's.

package main

import (
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var words = []string{"ash", "birch", "cedar"}

// newTrees has twenty items over seven keys; `word` is missing from every fourth.
func newTrees(r *run) (items, error) {
	i, err := newItems(r, nil)
	for number := 0; err == nil && number < 20; number++ {
		item := object{"id": fmt.Sprint(number), "pk": fmt.Sprintf("k%d", number%7), "n": number,
			"tags": []int{number % 2, number % 3}}
		if number%4 != 0 {
			item["word"] = words[number%3]
		}
		_, err = i.create(item)
	}
	return i, err
}

// asked is a query with the rows it must have, in a partition key or everywhere.
type asked struct {
	query    string
	key      string
	page     int32
	expected []string
	sorted   bool
}

// ask checks the rows of queries over the same items.
func ask(r *run, questions ...asked) error {
	i, err := newTrees(r)
	if err != nil {
		return err
	}
	for _, each := range questions {
		key := azcosmos.NewPartitionKey()
		if each.key != "" {
			key = text(each.key)
		}
		found, err := i.query(each.query, key, &azcosmos.QueryOptions{PageSizeHint: each.page})
		if err != nil {
			return fmt.Errorf("%s: %w", each.query, err)
		}
		if each.sorted {
			slices.Sort(found)
		}
		if err := equal(found, each.expected, each.query); err != nil {
			return err
		}
	}
	return nil
}

func queriesParameters(r *run) error {
	i, err := newTrees(r)
	if err != nil {
		return err
	}
	options := azcosmos.QueryOptions{QueryParameters: []azcosmos.QueryParameter{
		{Name: "@word", Value: "birch"}, {Name: "@numbers", Value: []int{1, 2, 7, 10}},
	}}
	query := "SELECT VALUE c.n FROM c WHERE c.word = @word AND ARRAY_CONTAINS(@numbers, c.n) ORDER BY c.n"
	found, err := i.query(query, azcosmos.NewPartitionKey(), &options)
	if err != nil {
		return err
	}
	return equal(found, []string{"1", "7", "10"}, "the numbers")
}

func queriesAggregates(r *run) error {
	return ask(r,
		asked{query: "SELECT VALUE COUNT(1) FROM c", expected: []string{"20"}},
		asked{query: "SELECT VALUE COUNT(c.word) FROM c", expected: []string{"15"}},
		asked{query: "SELECT VALUE SUM(c.n) FROM c WHERE c.n < 10", expected: []string{"45"}},
		asked{query: "SELECT VALUE AVG(c.n) FROM c", expected: []string{"9.5"}},
		asked{query: "SELECT VALUE MIN(c.word) FROM c", expected: []string{`"ash"`}},
		asked{query: "SELECT VALUE MAX(c.n) FROM c", expected: []string{"19"}},
		asked{query: "SELECT COUNT(1) AS many, MAX(c.n) AS most FROM c", key: "k0",
			expected: []string{`{"many":3,"most":14}`}},
	)
}

func queriesGroups(r *run) error {
	query := "SELECT c.word, COUNT(1) AS many FROM c WHERE IS_DEFINED(c.word) GROUP BY c.word"
	return ask(r,
		asked{query: query, sorted: true, expected: []string{
			`{"word":"ash","many":5}`, `{"word":"birch","many":5}`, `{"word":"cedar","many":5}`}},
		asked{query: query, key: "k1", sorted: true, expected: []string{
			`{"word":"ash","many":1}`, `{"word":"birch","many":1}`}},
	)
}

func queriesDistinct(r *run) error {
	return ask(r,
		asked{query: "SELECT DISTINCT VALUE c.word FROM c", sorted: true,
			expected: []string{`"ash"`, `"birch"`, `"cedar"`}},
		asked{query: "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk", page: 2,
			expected: []string{`"k0"`, `"k1"`, `"k2"`, `"k3"`, `"k4"`, `"k5"`, `"k6"`}},
	)
}

func queriesWindows(r *run) error {
	return ask(r,
		asked{query: "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC", expected: []string{"19", "18", "17"}},
		asked{query: "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 4 LIMIT 3", page: 2, expected: []string{"4", "5", "6"}},
		asked{query: "SELECT VALUE 1 FROM c OFFSET 18 LIMIT 5", expected: []string{"1", "1"}},
	)
}

func queriesJoins(r *run) error {
	expected := []string{"2", "5", "8", "11", "14", "17"}
	exists := "EXISTS (SELECT VALUE t FROM t IN c.tags WHERE t > 1)"
	return ask(r,
		asked{query: "SELECT VALUE c.n FROM c JOIN t IN c.tags WHERE t = 2 ORDER BY c.n", expected: expected},
		asked{query: "SELECT VALUE c.n FROM c WHERE " + exists + " ORDER BY c.n", expected: expected},
	)
}

func queriesContinuation(r *run) error {
	i, err := newTrees(r)
	if err != nil {
		return err
	}
	for _, query := range []string{"SELECT VALUE c.n FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n DESC"} {
		found := []string{}
		var token *string
		for pages := 0; pages < 30; pages++ {
			options := azcosmos.QueryOptions{PageSizeHint: 3, ContinuationToken: token}
			// A pager that knows nothing of the one before.
			page, err := i.container.NewQueryItemsPager(query, azcosmos.NewPartitionKey(), &options).NextPage(i)
			if err != nil {
				return err
			}
			for _, item := range page.Items {
				found = append(found, string(item))
			}
			token = page.ContinuationToken
			if token == nil || *token == "" {
				break
			}
		}
		if err := equal(sorted(found), numbers(0, 20), query); err != nil {
			return err
		}
	}
	return nil
}
