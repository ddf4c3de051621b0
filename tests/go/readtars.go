// Reads archives from standard input, each behind its length (uint32, little-endian), by Go's archive/tar, and tells
// for each of them its members, a line each, then how it ended:
//
//	M <type, hex> <name, hex> <size> <CRC-32 of the content>
//	E <error; empty at the archive's end>
package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
)

const largest = 1 << 20 // bytes of a member; a sparse one can claim any size

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for {
		var length uint32
		if binary.Read(in, binary.LittleEndian, &length) != nil {
			return
		}
		data := make([]byte, length)
		if _, err := io.ReadFull(in, data); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintln(out, "E", strings.ReplaceAll(tell(data, out), "\n", " "))
	}
}

func tell(data []byte, out io.Writer) string {
	reader := tar.NewReader(bytes.NewReader(data))
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		content, err := io.ReadAll(io.LimitReader(reader, largest+1))
		if err != nil {
			return err.Error()
		}
		if len(content) > largest {
			return "too large"
		}
		fmt.Fprintf(out, "M %02x %x %d %d\n", header.Typeflag, header.Name, len(content), crc32.ChecksumIEEE(content))
	}
}
