// Items: every operation, preconditions, batches, time to live, keys and ids of all kinds.

package main

import (
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var itemChecks = []check{
	{"items", "create returns the item with system properties", itemsCreate},
	{"items", "an id is made when asked for", notOffered},
	{"items", "read", itemsRead},
	{"items", "a missing item is not found", itemsMissing},
	{"items", "a taken id conflicts", itemsConflict},
	{"items", "upsert creates and replaces", itemsUpsert},
	{"items", "replace", itemsReplace},
	{"items", "patch: every operation", itemsPatch},
	{"items", "patch under a condition", itemsPatchCondition},
	{"items", "delete", itemsDelete},
	{"items", "a write without a returned item", itemsMinimal},
	{"items", "delete all of a partition key", notOffered},
	{"items", "partition keys of every type", itemsKeys},
	{"items", "read many", itemsReadMany},
	{"items", "numbers and texts are kept exactly", itemsExact},
	{"queries", "within a partition key", queriesKey},
	{"queries", "across partitions, in order", queriesAcross},
	{"queries", "with a plan from the server", notOffered},
	{"queries", "parameters", queriesParameters},
	{"queries", "aggregates", queriesAggregates},
	{"queries", "group by", queriesGroups},
	{"queries", "distinct", queriesDistinct},
	{"queries", "top, offset and limit", queriesWindows},
	{"queries", "joins and sub-queries", queriesJoins},
	{"queries", "a continuation goes on in another client", queriesContinuation},
	{"preconditions", "a stale etag does not replace", staleReplace},
	{"preconditions", "a stale etag does not upsert, patch or delete", staleOthers},
	{"preconditions", "an unchanged item is not sent again", notOffered},
	{"batch", "every operation in one transaction", batchAll},
	{"batch", "a failing one changes nothing", batchFails},
	{"batch", "limits are named", batchLimits},
	{"bulk", "many operations over all ranges", notOffered},
	{"bulk", "every operation", notOffered},
	{"bulk", "a write without a returned item", notOffered},
	{"ttl", "an item expires", ttlItem},
	{"ttl", "the container's default applies", ttlDefault},
	{"ttl", "an impossible one is refused", ttlBad},
	{"hierarchical keys", "create, read, replace, delete", hierarchical},
	{"hierarchical keys", "query by a prefix", hierarchicalPrefix},
	{"odd ids", "spaces, unicode, plus, percent, quotes", oddIDs},
	{"session", "a client reads what it wrote", session},
}

// items is a container in which an item's key is its property `pk`.
type items struct {
	*run
	container *azcosmos.ContainerClient
}

func newItems(r *run, change func(*azcosmos.ContainerProperties)) (items, error) {
	container, err := r.container(change)
	return items{r, container}, err
}

func text(value string) azcosmos.PartitionKey { return azcosmos.NewPartitionKeyString(value) }

func (i items) create(item object) (object, error) {
	response, err := i.container.CreateItem(i, text(item["pk"].(string)), encode(item), nil)
	return decode(response.Value), err
}

func (i items) upsert(item object) (azcosmos.ItemResponse, error) {
	return i.container.UpsertItem(i, text(item["pk"].(string)), encode(item), nil)
}

func (i items) read(id, pk string) (object, error) {
	response, err := i.container.ReadItem(i, text(pk), id, nil)
	if err != nil {
		return nil, err
	}
	return decode(response.Value), nil
}

func (i items) isMissing(id, pk string) error {
	_, err := i.read(id, pk)
	return fails(404, err)
}

func itemsCreate(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	given := object{"id": "1", "pk": "a", "deep": object{"list": []any{1.0, 2.5, "drei", nil, true}}}
	response, err := i.container.CreateItem(r, text("a"), encode(given), nil)
	if err != nil {
		return err
	}
	created := decode(response.Value)
	for _, name := range []string{"_rid", "_self", "_etag", "_ts", "_attachments"} {
		if created[name] == nil {
			return fmt.Errorf("%s is missing", name)
		}
	}
	if response.RequestCharge <= 0 || response.ActivityID == "" || response.SessionToken == nil {
		return fmt.Errorf("a header is missing: %v", response.RawResponse.Header)
	}
	return first(
		func() error { return equal(plain(created), given, "the item") },
		func() error { return equal(string(response.ETag), created["_etag"], "the etag") },
	)
}

func itemsRead(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if _, err := i.create(object{"id": "1", "pk": "a", "n": 1.0}); err != nil {
		return err
	}
	found, err := i.read("1", "a")
	if err != nil {
		return err
	}
	return equal(plain(found), object{"id": "1", "pk": "a", "n": 1.0}, "the item")
}

func itemsMissing(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	return first(
		func() error { return i.isMissing("2", "a") },
		func() error {
			_, err := i.container.ReplaceItem(r, text("a"), "2", encode(object{"id": "2", "pk": "a"}), nil)
			return fails(404, err)
		},
		func() error {
			_, err := i.container.DeleteItem(r, text("a"), "2", nil)
			return fails(404, err)
		},
	)
}

func itemsConflict(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if _, err := i.create(object{"id": "1", "pk": "a"}); err != nil {
		return err
	}
	_, err = i.create(object{"id": "1", "pk": "a"})
	if err := fails(409, err); err != nil {
		return err
	}
	_, err = i.create(object{"id": "1", "pk": "b"})
	return err
}

func itemsUpsert(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if _, err := i.upsert(object{"id": "1", "pk": "a", "n": 1.0, "old": true}); err != nil {
		return err
	}
	second, err := i.upsert(object{"id": "1", "pk": "a", "n": 2.0})
	if err != nil {
		return err
	}
	return first(
		func() error { return equal(second.RawResponse.StatusCode, 200, "the status") },
		func() error {
			return equal(plain(decode(second.Value)), object{"id": "1", "pk": "a", "n": 2.0}, "the item")
		},
	)
}

func itemsReplace(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	item, err := i.create(object{"id": "1", "pk": "a", "n": 1.0})
	if err != nil {
		return err
	}
	item["n"] = 2.0
	response, err := i.container.ReplaceItem(r, text("a"), "1", encode(item), nil)
	if err != nil {
		return err
	}
	replaced := decode(response.Value)
	return first(
		func() error { return equal(replaced["n"], 2.0, "n") },
		func() error { return equal(replaced["_rid"], item["_rid"], "the resource id") },
	)
}

func itemsPatch(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if _, err := i.create(object{"id": "1", "pk": "a", "n": 1.0, "old": 1.0, "list": []any{1.0, 3.0}}); err != nil {
		return err
	}
	patch := azcosmos.PatchOperations{}
	patch.AppendAdd("/new", object{"a": 1.0})
	patch.AppendAdd("/list/1", 2.0)
	patch.AppendSet("/set", []any{true})
	patch.AppendReplace("/n", 10)
	patch.AppendIncrement("/n", 5)
	patch.AppendRemove("/old")
	response, err := i.container.PatchItem(r, text("a"), "1", patch, nil)
	if err != nil {
		return err
	}
	expected := object{
		"id": "1", "pk": "a", "n": 15.0, "list": []any{1.0, 2.0, 3.0},
		"new": object{"a": 1.0}, "set": []any{true},
	}
	return equal(plain(decode(response.Value)), expected, "the item")
}

func itemsPatchCondition(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if _, err := i.create(object{"id": "1", "pk": "a", "n": 1.0}); err != nil {
		return err
	}
	patch := azcosmos.PatchOperations{}
	patch.SetCondition("from c where c.n = 1")
	patch.AppendIncrement("/n", 1)
	if _, err := i.container.PatchItem(r, text("a"), "1", patch, nil); err != nil {
		return err
	}
	_, err = i.container.PatchItem(r, text("a"), "1", patch, nil)
	return fails(412, err)
}

func itemsDelete(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if _, err := i.create(object{"id": "1", "pk": "a"}); err != nil {
		return err
	}
	if _, err := i.container.DeleteItem(r, text("a"), "1", nil); err != nil {
		return err
	}
	return i.isMissing("1", "a")
}

func itemsMinimal(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	options := azcosmos.ItemOptions{EnableContentResponseOnWrite: false}
	response, err := i.container.CreateItem(r, text("a"), encode(object{"id": "1", "pk": "a"}), &options)
	if err != nil {
		return err
	}
	if len(response.Value) > 0 || response.ETag == "" {
		return fmt.Errorf("a body or no etag: %q %q", response.Value, response.ETag)
	}
	_, err = i.read("1", "a")
	return err
}

func itemsKeys(r *run) error {
	container, err := r.container(nil)
	if err != nil {
		return err
	}
	keys := map[string]struct {
		value any
		key   azcosmos.PartitionKey
	}{
		"text":   {"ä b+%", text("ä b+%")},
		"number": {4.5, azcosmos.NewPartitionKeyNumber(4.5)},
		"true":   {true, azcosmos.NewPartitionKeyBool(true)},
		"false":  {false, azcosmos.NewPartitionKeyBool(false)},
		"null":   {nil, azcosmos.NullPartitionKey},
	}
	for id, each := range keys {
		item := encode(object{"id": id, "pk": each.value})
		if _, err := container.CreateItem(r, each.key, item, nil); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		read, err := container.ReadItem(r, each.key, id, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if err := equal(decode(read.Value)["pk"], each.value, id); err != nil {
			return err
		}
	}
	return nil
}

func itemsReadMany(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	wanted := []azcosmos.ItemIdentity{{ID: "none", PartitionKey: text("k1")}}
	for number := range 20 {
		id, pk := fmt.Sprint(number), fmt.Sprintf("k%d", number%7)
		if _, err := i.create(object{"id": id, "pk": pk}); err != nil {
			return err
		}
		wanted = append(wanted, azcosmos.ItemIdentity{ID: id, PartitionKey: text(pk)})
	}
	response, err := i.container.ReadManyItems(r, wanted, nil)
	if err != nil {
		return err
	}
	ids := []string{}
	for _, item := range response.Items {
		ids = append(ids, decode(item)["id"].(string))
	}
	return equal(sorted(ids), numbers(0, 20), "the items")
}

func itemsExact(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	given := object{
		"id": "1", "pk": "a", "big": 9007199254740991.0, "small": -0.000001, "large": 1.5e300,
		"text": "\u0000\u001f\"\\/ äöü 日本 😀 \u2028", "": "empty name",
	}
	if _, err := i.create(given); err != nil {
		return err
	}
	found, err := i.read("1", "a")
	if err != nil {
		return err
	}
	return equal(plain(found), given, "the item")
}

func (i items) query(query string, key azcosmos.PartitionKey, options *azcosmos.QueryOptions) ([]string, error) {
	found := []string{}
	pager := i.container.NewQueryItemsPager(query, key, options)
	for pager.More() {
		page, err := pager.NextPage(i)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			found = append(found, string(item))
		}
	}
	return found, nil
}

func (i items) fill(from, to, keys int) error {
	for number := from; number < to; number++ {
		item := object{"id": fmt.Sprint(number), "pk": fmt.Sprintf("k%d", number%keys), "n": number}
		if _, err := i.create(item); err != nil {
			return err
		}
	}
	return nil
}

func queriesKey(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if err := i.fill(0, 10, 2); err != nil {
		return err
	}
	options := azcosmos.QueryOptions{QueryParameters: []azcosmos.QueryParameter{{Name: "@n", Value: 3}}}
	found, err := i.query("SELECT VALUE c.n FROM c WHERE c.n > @n", text("k0"), &options)
	if err != nil {
		return err
	}
	return equal(sorted(found), []string{"4", "6", "8"}, "the numbers")
}

func queriesAcross(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if err := i.fill(0, 20, 20); err != nil {
		return err
	}
	options := azcosmos.QueryOptions{PageSizeHint: 3}
	query := "SELECT VALUE c.n FROM c WHERE c.n >= 5 ORDER BY c.n"
	found, err := i.query(query, azcosmos.NewPartitionKey(), &options)
	if err != nil {
		return err
	}
	return equal(found, numbers(5, 20), "the numbers")
}

func ifMatch(etag azcore.ETag) *azcosmos.ItemOptions {
	return &azcosmos.ItemOptions{IfMatchEtag: &etag}
}

// stale makes an item with two versions, and returns the etags of both.
func (i items) versions() (old, fresh azcore.ETag, err error) {
	one, err := i.upsert(object{"id": "1", "pk": "a", "n": 1})
	if err != nil {
		return "", "", err
	}
	two, err := i.upsert(object{"id": "1", "pk": "a", "n": 2})
	return one.ETag, two.ETag, err
}

func staleReplace(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	old, fresh, err := i.versions()
	if err != nil {
		return err
	}
	item := encode(object{"id": "1", "pk": "a"})
	_, err = i.container.ReplaceItem(r, text("a"), "1", item, ifMatch(old))
	if err := fails(412, err); err != nil {
		return err
	}
	_, err = i.container.ReplaceItem(r, text("a"), "1", item, ifMatch(fresh))
	return err
}

func staleOthers(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	old, fresh, err := i.versions()
	if err != nil {
		return err
	}
	patch := azcosmos.PatchOperations{}
	patch.AppendIncrement("/n", 1)
	return first(
		func() error {
			_, err := i.container.UpsertItem(r, text("a"), encode(object{"id": "1", "pk": "a"}), ifMatch(old))
			return fails(412, err)
		},
		func() error {
			_, err := i.container.PatchItem(r, text("a"), "1", patch, ifMatch(old))
			return fails(412, err)
		},
		func() error {
			_, err := i.container.DeleteItem(r, text("a"), "1", ifMatch(old))
			return fails(412, err)
		},
		func() error {
			_, err := i.container.DeleteItem(r, text("a"), "1", ifMatch(fresh))
			return err
		},
	)
}

func statuses(response azcosmos.TransactionalBatchResponse) []int32 {
	found := []int32{}
	for _, result := range response.OperationResults {
		found = append(found, result.StatusCode)
	}
	return found
}

func batchAll(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	for _, id := range []string{"read", "replace", "delete", "patch"} {
		if _, err := i.create(object{"id": id, "pk": "a", "n": 1}); err != nil {
			return err
		}
	}
	patch := azcosmos.PatchOperations{}
	patch.AppendIncrement("/n", 1)
	batch := i.container.NewTransactionalBatch(text("a"))
	batch.CreateItem(encode(object{"id": "create", "pk": "a"}), nil)
	batch.UpsertItem(encode(object{"id": "upsert", "pk": "a"}), nil)
	batch.ReadItem("read", nil)
	batch.ReplaceItem("replace", encode(object{"id": "replace", "pk": "a", "n": 2}), nil)
	batch.DeleteItem("delete", nil)
	batch.PatchItem("patch", patch, nil)
	options := azcosmos.TransactionalBatchOptions{EnableContentResponseOnWrite: true}
	response, err := i.container.ExecuteTransactionalBatch(r, batch, &options)
	if err != nil {
		return err
	}
	return first(
		func() error { return equal(statuses(response), []int32{201, 201, 200, 200, 204, 200}, "statuses") },
		func() error {
			return equal(decode(response.OperationResults[5].ResourceBody)["n"], 2.0, "the patched item")
		},
	)
}

func batchFails(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if _, err := i.create(object{"id": "taken", "pk": "a"}); err != nil {
		return err
	}
	batch := i.container.NewTransactionalBatch(text("a"))
	batch.CreateItem(encode(object{"id": "new", "pk": "a"}), nil)
	batch.CreateItem(encode(object{"id": "taken", "pk": "a"}), nil)
	response, err := i.container.ExecuteTransactionalBatch(r, batch, nil)
	if err != nil {
		return err
	}
	return first(
		func() error { return equal(response.Success, false, "success") },
		func() error { return equal(statuses(response), []int32{424, 409}, "statuses") },
		func() error { return i.isMissing("new", "a") },
	)
}

func batchLimits(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	send := func(count int) (azcosmos.TransactionalBatchResponse, error) {
		batch := i.container.NewTransactionalBatch(text("a"))
		for number := range count {
			batch.CreateItem(encode(object{"id": fmt.Sprint(number), "pk": "a"}), nil)
		}
		return i.container.ExecuteTransactionalBatch(r, batch, nil)
	}
	_, err = send(101)
	if err := fails(400, err); err != nil {
		return err
	}
	response, err := send(100)
	if err != nil {
		return err
	}
	return equal(response.Success, true, "success")
}

func withTTL(seconds int32) func(*azcosmos.ContainerProperties) {
	return func(properties *azcosmos.ContainerProperties) { properties.DefaultTimeToLive = &seconds }
}

func ttlItem(r *run) error {
	i, err := newItems(r, withTTL(-1))
	if err != nil {
		return err
	}
	for id, ttl := range map[string]int{"short": 1, "long": -1} {
		if _, err := i.create(object{"id": id, "pk": "a", "ttl": ttl}); err != nil {
			return err
		}
	}
	time.Sleep(2500 * time.Millisecond)
	if _, err := i.read("long", "a"); err != nil {
		return err
	}
	return i.isMissing("short", "a")
}

func ttlDefault(r *run) error {
	i, err := newItems(r, withTTL(1))
	if err != nil {
		return err
	}
	if _, err := i.create(object{"id": "default", "pk": "a"}); err != nil {
		return err
	}
	if _, err := i.create(object{"id": "own", "pk": "a", "ttl": 100}); err != nil {
		return err
	}
	time.Sleep(2500 * time.Millisecond)
	if _, err := i.read("own", "a"); err != nil {
		return err
	}
	return i.isMissing("default", "a")
}

func ttlBad(r *run) error {
	i, err := newItems(r, withTTL(-1))
	if err != nil {
		return err
	}
	for _, ttl := range []any{0, -2, "10", nil} {
		_, err := i.create(object{"id": "1", "pk": "a", "ttl": ttl})
		if err := fails(400, err); err != nil {
			return fmt.Errorf("%v: %w", ttl, err)
		}
	}
	return nil
}

func withKeyPaths(paths ...string) func(*azcosmos.ContainerProperties) {
	return func(properties *azcosmos.ContainerProperties) {
		properties.PartitionKeyDefinition = azcosmos.PartitionKeyDefinition{
			Kind: azcosmos.PartitionKeyKindMultiHash, Version: 2, Paths: paths,
		}
	}
}

// fillTenants makes 12 items of three tenants and two users.
func fillTenants(r *run) (items, error) {
	i, err := newItems(r, withKeyPaths("/tenant", "/user"))
	if err != nil {
		return i, err
	}
	for number := range 12 {
		tenant, user := fmt.Sprintf("t%d", number%3), fmt.Sprintf("u%d", number%2)
		item := encode(object{"id": fmt.Sprint(number), "tenant": tenant, "user": user})
		key := azcosmos.NewPartitionKey().AppendString(tenant).AppendString(user)
		if _, err := i.container.CreateItem(r, key, item, nil); err != nil {
			return i, err
		}
	}
	return i, nil
}

func hierarchicalPrefix(r *run) error {
	i, err := fillTenants(r)
	if err != nil {
		return err
	}
	found, err := i.query("SELECT VALUE StringToNumber(c.id) FROM c", text("t1"), nil)
	if err != nil {
		return err
	}
	return equal(sorted(found), []string{"1", "4", "7", "10"}, "the items")
}

func hierarchical(r *run) error {
	container, err := r.container(withKeyPaths("/tenant", "/user", "/session"))
	if err != nil {
		return err
	}
	key := azcosmos.NewPartitionKey().AppendString("t").AppendString("u").AppendNumber(3)
	other := azcosmos.NewPartitionKey().AppendString("t").AppendString("u").AppendNumber(4)
	item := object{"id": "1", "tenant": "t", "user": "u", "session": 3.0}
	if _, err := container.CreateItem(r, key, encode(item), nil); err != nil {
		return err
	}
	item["n"] = 1.0
	if _, err := container.ReplaceItem(r, key, "1", encode(item), nil); err != nil {
		return err
	}
	read, err := container.ReadItem(r, key, "1", nil)
	if err != nil {
		return err
	}
	if err := equal(plain(decode(read.Value)), item, "the item"); err != nil {
		return err
	}
	_, err = container.ReadItem(r, other, "1", nil)
	if err := fails(404, err); err != nil {
		return err
	}
	_, err = container.DeleteItem(r, key, "1", nil)
	return err
}

func oddIDs(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	ids := []string{"a b", "äöü", "日本", "😀", "a+b", "a%20b", "100%", "a&b=c", "it's", `say "x"`, "a.b~c-d_e", "a,b;c:d@e"}
	for _, id := range ids {
		if _, err := i.create(object{"id": id, "pk": id}); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		found, err := i.read(id, id)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if err := equal(found["id"], id, "the id"); err != nil {
			return err
		}
		if _, err := i.container.DeleteItem(r, text(id), id, nil); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

func session(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	created, err := i.upsert(object{"id": "1", "pk": "a", "n": 1})
	if err != nil {
		return err
	}
	options := azcosmos.ItemOptions{SessionToken: created.SessionToken}
	_, err = i.container.ReadItem(r, text("a"), "1", &options)
	return err
}
