// Runs the checks with the official Go client.

package main

import (
	"context"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// run is one check's own client, and the databases it made.
type run struct {
	context.Context
	client    *azcosmos.Client
	databases []*azcosmos.DatabaseClient
}

func newClient(key string) (*azcosmos.Client, error) {
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		return nil, err
	}
	options := azcosmos.ClientOptions{}
	// A refused request must be seen, not repeated.
	options.Retry = policy.RetryOptions{MaxRetries: 1}
	options.EnableContentResponseOnWrite = true
	return azcosmos.NewClientWithKey(endpoint, credential, &options)
}

func newRun(ctx context.Context) (*run, error) {
	client, err := newClient(key)
	return &run{Context: ctx, client: client}, err
}

func (r *run) database() (*azcosmos.DatabaseClient, error) {
	id := unique("go")
	if _, err := r.client.CreateDatabase(r, azcosmos.DatabaseProperties{ID: id}, nil); err != nil {
		return nil, err
	}
	database, err := r.client.NewDatabase(id)
	r.databases = append(r.databases, database)
	return database, err
}

// container makes a container in a database of its own; change may alter its definition.
func (r *run) container(change func(*azcosmos.ContainerProperties)) (*azcosmos.ContainerClient, error) {
	return r.containerWith(change, nil)
}

func (r *run) containerWith(
	change func(*azcosmos.ContainerProperties),
	options *azcosmos.CreateContainerOptions,
) (*azcosmos.ContainerClient, error) {
	database, err := r.database()
	if err != nil {
		return nil, err
	}
	properties := azcosmos.ContainerProperties{
		ID:                     "items",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}, Version: 2},
	}
	if change != nil {
		change(&properties)
	}
	if _, err := database.CreateContainer(r, properties, options); err != nil {
		return nil, err
	}
	return database.NewContainer("items")
}

func (r *run) end() error {
	for _, database := range r.databases {
		if _, err := database.Delete(r, nil); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	checks := append(append(accountChecks, itemChecks...), feedChecks...)
	if !runAll(checks) {
		os.Exit(1)
	}
}
