// What a compatibility program needs around its checks: names, results, and a line to the runner.
// A check passes by returning nil. Nothing here knows a database operation.

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

const clientName = "go"
const checkTimeMax = 60 * time.Second

var (
	endpoint = os.Getenv("HEADWATER_ENDPOINT")
	key      = os.Getenv("HEADWATER_ACCOUNT_KEY")
	answers  = bufio.NewScanner(os.Stdin)
)

type check struct {
	group, name string
	work        func(*run) error
}

// notOffered stands for the work of a check that the client itself has no operation for.
var notOffered func(*run) error

type object = map[string]any

func equal(found, expected any, about string) error {
	if !reflect.DeepEqual(found, expected) {
		return fmt.Errorf("%s: found %v, expected %v", about, found, expected)
	}
	return nil
}

// fails demands that the server refused with this status.
func fails(status int, err error) error {
	var refused *azcore.ResponseError
	if err == nil {
		return fmt.Errorf("expected %d, but it succeeded", status)
	}
	if !errors.As(err, &refused) {
		return fmt.Errorf("expected %d: %w", status, err)
	}
	return equal(refused.StatusCode, status, "the status")
}

// first is the first error of several steps.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // Only values of this program come here.
	}
	return text
}

func decode(text []byte) object {
	var value object
	if err := json.Unmarshal(text, &value); err != nil {
		return object{"undecodable": string(text)}
	}
	return value
}

func plain(item object) object {
	kept := object{}
	for name, value := range item {
		if !strings.HasPrefix(name, "_") {
			kept[name] = value
		}
	}
	return kept
}

func unique(prefix string) string {
	bytes := make([]byte, 4)
	_, _ = rand.Read(bytes)
	return prefix + "-" + hex.EncodeToString(bytes)
}

func numbers(from, to int) []string {
	ids := []string{}
	for number := from; number < to; number++ {
		ids = append(ids, strconv.Itoa(number))
	}
	return ids
}

func sorted(ids []string) []string {
	ids = append([]string{}, ids...)
	sort.Slice(ids, func(one, two int) bool {
		a, _ := strconv.Atoi(ids[one])
		b, _ := strconv.Atoi(ids[two])
		return a < b
	})
	return ids
}

func restartServer() error {
	fmt.Println(`{"control":"restart"}`)
	if !answers.Scan() || !strings.Contains(answers.Text(), "true") {
		return fmt.Errorf("the runner could not: %q", answers.Text())
	}
	return nil
}

// split sends a signed request to Headwater's own path, which no official client knows.
func split(database, container, rangeID string) error {
	date := time.Now().UTC().Format(http.TimeFormat)
	text := fmt.Sprintf("post\ncolls\ndbs/%s/colls/%s\n%s\n\n", database, container, strings.ToLower(date))
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	address := fmt.Sprintf("%s/_headwater/partitions/%s/%s/split", endpoint, database, container)
	request, err := http.NewRequest("POST", address, bytes.NewReader(encode(object{"range": rangeID})))
	if err != nil {
		return err
	}
	request.Header.Set("authorization", url.QueryEscape("type=master&ver=1.0&sig="+signature))
	request.Header.Set("x-ms-date", date)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the split failed: %d %s", response.StatusCode, body)
	}
	return nil
}

// runAll runs every check, one after the other; false if one failed.
func runAll(checks []check) bool {
	green := true
	for _, each := range checks {
		if !strings.Contains(each.group+": "+each.name, os.Getenv("HEADWATER_ONLY")) {
			continue
		}
		if each.work == nil {
			line := object{"client": clientName, "group": each.group, "check": each.name, "ok": true, "offered": false}
			fmt.Println(string(encode(line)))
			continue
		}
		err := runOne(each)
		detail := ""
		if err != nil {
			green = false
			detail = err.Error()
			if len(detail) > 600 {
				detail = detail[:600]
			}
		}
		line := object{"client": clientName, "group": each.group, "check": each.name, "ok": err == nil, "detail": detail}
		fmt.Println(string(encode(line)))
	}
	return green
}

func runOne(each check) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeMax)
	defer cancel()
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	current, err := newRun(ctx)
	if err != nil {
		return err
	}
	if err := each.work(current); err != nil {
		return err
	}
	return current.end()
}
