// Start-up, databases, containers, throughput: what is there before any item.

package main

import (
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

var accountChecks = []check{
	{"start-up", "reads the account", readsTheAccount},
	{"start-up", "refuses a wrong key", refusesWrongKey},
	{"databases", "create, read, list, delete", databasesRound},
	{"databases", "create if not exists", notOffered},
	{"databases", "a taken id conflicts", databasesConflict},
	{"databases", "query by id", databasesQuery},
	{"containers", "create, read, list, delete", containersRound},
	{"containers", "create if not exists", notOffered},
	{"containers", "a taken id conflicts", containersConflict},
	{"containers", "policies come back as given", containersPolicies},
	{"containers", "replace changes what may change", containersReplace},
	{"containers", "query by id", containersQuery},
	{"containers", "made anew under its name", containersAnew},
	{"containers", "unique keys", containersUnique},
	{"throughput", "read", throughputRead},
	{"throughput", "replace", throughputReplace},
	{"throughput", "autoscale", throughputAutoscale},
	{"throughput", "of a database", throughputDatabase},
	{"users", "a permission's token reads and does not write", notOffered},
}

func readsTheAccount(r *run) error {
	// The client reads the account before its first request, and then goes where it was told.
	pager := r.client.NewQueryDatabasesPager("SELECT * FROM c", nil)
	_, err := pager.NextPage(r)
	return err
}

func refusesWrongKey(r *run) error {
	wrong, err := newClient("d3Jvbmcgd3Jvbmcgd3Jvbmc=")
	if err != nil {
		return err
	}
	_, err = wrong.CreateDatabase(r, azcosmos.DatabaseProperties{ID: "never"}, nil)
	return fails(401, err)
}

func databaseIDs(r *run, query string, options *azcosmos.QueryDatabasesOptions) ([]string, error) {
	ids := []string{}
	pager := r.client.NewQueryDatabasesPager(query, options)
	for pager.More() {
		page, err := pager.NextPage(r)
		if err != nil {
			return nil, err
		}
		for _, database := range page.Databases {
			ids = append(ids, database.ID)
		}
	}
	return ids, nil
}

func databasesRound(r *run) error {
	id := unique("round")
	if _, err := r.client.CreateDatabase(r, azcosmos.DatabaseProperties{ID: id}, nil); err != nil {
		return err
	}
	database, err := r.client.NewDatabase(id)
	if err != nil {
		return err
	}
	read, err := database.Read(r, nil)
	if err != nil {
		return err
	}
	if err := equal(read.DatabaseProperties.ID, id, "the id"); err != nil {
		return err
	}
	listed, err := databaseIDs(r, "SELECT * FROM c", nil)
	if err != nil {
		return err
	}
	if !slices.Contains(listed, id) {
		return fmt.Errorf("it is not in the list: %v", listed)
	}
	if _, err := database.Delete(r, nil); err != nil {
		return err
	}
	_, err = database.Read(r, nil)
	return fails(404, err)
}

func databasesConflict(r *run) error {
	database, err := r.database()
	if err != nil {
		return err
	}
	_, err = r.client.CreateDatabase(r, azcosmos.DatabaseProperties{ID: database.ID()}, nil)
	return fails(409, err)
}

func databasesQuery(r *run) error {
	database, err := r.database()
	if err != nil {
		return err
	}
	options := azcosmos.QueryDatabasesOptions{
		QueryParameters: []azcosmos.QueryParameter{{Name: "@id", Value: database.ID()}},
	}
	ids, err := databaseIDs(r, "SELECT * FROM root r WHERE r.id = @id", &options)
	if err != nil {
		return err
	}
	return equal(ids, []string{database.ID()}, "the databases")
}

func containersRound(r *run) error {
	container, err := r.container(nil)
	if err != nil {
		return err
	}
	read, err := container.Read(r, nil)
	if err != nil {
		return err
	}
	properties := read.ContainerProperties
	if err := equal(properties.PartitionKeyDefinition.Paths, []string{"/pk"}, "the key"); err != nil {
		return err
	}
	if properties.ResourceID == "" || properties.ETag == nil {
		return fmt.Errorf("a system property is missing: %v", properties)
	}
	if _, err := container.Delete(r, nil); err != nil {
		return err
	}
	_, err = container.Read(r, nil)
	return fails(404, err)
}

func containersConflict(r *run) error {
	if _, err := r.container(nil); err != nil {
		return err
	}
	properties := azcosmos.ContainerProperties{
		ID:                     "items",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}},
	}
	_, err := r.databases[0].CreateContainer(r, properties, nil)
	return fails(409, err)
}

func containersPolicies(r *run) error {
	ttl := int32(3600)
	composite := [][]azcosmos.CompositeIndex{{
		{Path: "/a", Order: azcosmos.CompositeIndexAscending},
		{Path: "/b", Order: azcosmos.CompositeIndexDescending},
	}}
	container, err := r.container(func(properties *azcosmos.ContainerProperties) {
		properties.DefaultTimeToLive = &ttl
		properties.IndexingPolicy = &azcosmos.IndexingPolicy{
			Automatic:        true,
			IndexingMode:     azcosmos.IndexingModeConsistent,
			IncludedPaths:    []azcosmos.IncludedPath{{Path: "/*"}},
			CompositeIndexes: composite,
		}
		properties.UniqueKeyPolicy = &azcosmos.UniqueKeyPolicy{
			UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/email"}}},
		}
	})
	if err != nil {
		return err
	}
	read, err := container.Read(r, nil)
	if err != nil {
		return err
	}
	found := read.ContainerProperties
	return first(
		func() error { return equal(*found.DefaultTimeToLive, ttl, "the time to live") },
		func() error { return equal(found.IndexingPolicy.CompositeIndexes, composite, "the indexes") },
		func() error {
			return equal(found.UniqueKeyPolicy.UniqueKeys[0].Paths, []string{"/email"}, "the unique keys")
		},
	)
}

func containersReplace(r *run) error {
	container, err := r.container(nil)
	if err != nil {
		return err
	}
	read, err := container.Read(r, nil)
	if err != nil {
		return err
	}
	ttl := int32(60)
	properties := *read.ContainerProperties
	properties.DefaultTimeToLive = &ttl
	if _, err := container.Replace(r, properties, nil); err != nil {
		return err
	}
	read, err = container.Read(r, nil)
	if err != nil {
		return err
	}
	return equal(*read.ContainerProperties.DefaultTimeToLive, ttl, "the time to live")
}

func containersQuery(r *run) error {
	if _, err := r.container(nil); err != nil {
		return err
	}
	ids := []string{}
	pager := r.databases[0].NewQueryContainersPager("SELECT * FROM c WHERE c.id = 'items'", nil)
	for pager.More() {
		page, err := pager.NextPage(r)
		if err != nil {
			return err
		}
		for _, container := range page.Containers {
			ids = append(ids, container.ID)
		}
	}
	return equal(ids, []string{"items"}, "the containers")
}

func containersAnew(r *run) error {
	i, err := newItems(r, nil)
	if err != nil {
		return err
	}
	if _, err := i.create(object{"id": "1", "pk": "a"}); err != nil {
		return err
	}
	if _, err := i.container.Delete(r, nil); err != nil {
		return err
	}
	properties := azcosmos.ContainerProperties{
		ID:                     "items",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}},
	}
	if _, err := r.databases[0].CreateContainer(r, properties, nil); err != nil {
		return err
	}
	if err := i.isMissing("1", "a"); err != nil {
		return err
	}
	_, err = i.create(object{"id": "1", "pk": "a"})
	return err
}

func containersUnique(r *run) error {
	container, err := r.container(func(properties *azcosmos.ContainerProperties) {
		properties.UniqueKeyPolicy = &azcosmos.UniqueKeyPolicy{
			UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/email"}}},
		}
	})
	if err != nil {
		return err
	}
	create := func(id, pk string) error {
		item := encode(object{"id": id, "pk": pk, "email": "x"})
		_, err := container.CreateItem(r, azcosmos.NewPartitionKeyString(pk), item, nil)
		return err
	}
	return first(
		func() error { return create("1", "a") },
		func() error { return fails(409, create("2", "a")) },
		func() error { return create("2", "b") },
	)
}

func withThroughput(r *run, wanted azcosmos.ThroughputProperties) (*azcosmos.ContainerClient, error) {
	return r.containerWith(nil, &azcosmos.CreateContainerOptions{ThroughputProperties: &wanted})
}

func manualThroughput(r *run, container *azcosmos.ContainerClient, expected int32) error {
	read, err := container.ReadThroughput(r, nil)
	if err != nil {
		return err
	}
	found, _ := read.ThroughputProperties.ManualThroughput()
	return equal(found, expected, "the throughput")
}

func throughputRead(r *run) error {
	container, err := withThroughput(r, azcosmos.NewManualThroughputProperties(700))
	if err != nil {
		return err
	}
	return manualThroughput(r, container, 700)
}

func throughputReplace(r *run) error {
	container, err := withThroughput(r, azcosmos.NewManualThroughputProperties(400))
	if err != nil {
		return err
	}
	if _, err := container.ReplaceThroughput(r, azcosmos.NewManualThroughputProperties(1000), nil); err != nil {
		return err
	}
	return manualThroughput(r, container, 1000)
}

func throughputAutoscale(r *run) error {
	container, err := withThroughput(r, azcosmos.NewAutoscaleThroughputProperties(5000))
	if err != nil {
		return err
	}
	read, err := container.ReadThroughput(r, nil)
	if err != nil {
		return err
	}
	found, _ := read.ThroughputProperties.AutoscaleMaxThroughput()
	return equal(found, int32(5000), "the throughput")
}

func throughputDatabase(r *run) error {
	wanted := azcosmos.NewManualThroughputProperties(600)
	id := unique("shared")
	options := azcosmos.CreateDatabaseOptions{ThroughputProperties: &wanted}
	if _, err := r.client.CreateDatabase(r, azcosmos.DatabaseProperties{ID: id}, &options); err != nil {
		return err
	}
	database, err := r.client.NewDatabase(id)
	if err != nil {
		return err
	}
	r.databases = append(r.databases, database)
	read, err := database.ReadThroughput(r, nil)
	if err != nil {
		return err
	}
	found, _ := read.ThroughputProperties.ManualThroughput()
	return equal(found, int32(600), "the throughput")
}
