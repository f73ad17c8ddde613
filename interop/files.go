package main

import (
	"crypto/sha256"
	"fmt"

	"example.org/interop/pb/provisioner"
)

const chunk = 2 << 20

// pieces cuts a file into the messages of its transfer.
func pieces(data []byte) []*provisioner.FileUpload {
	hash := sha256.Sum256(data)
	count := (len(data) + chunk - 1) / chunk
	list := []*provisioner.FileUpload{{Type: &provisioner.FileUpload_DataUpload{DataUpload: &provisioner.DataUpload{
		UploadType: provisioner.DataUploadType_UPLOAD_TYPE_MODULE_FILES,
		DataHash:   hash[:],
		FileSize:   int64(len(data)),
		Chunks:     int32(count),
	}}}}
	for i := 0; i < count; i++ {
		part := data[i*chunk : min(len(data), (i+1)*chunk)]
		list = append(list, &provisioner.FileUpload{Type: &provisioner.FileUpload_ChunkPiece{
			ChunkPiece: &provisioner.ChunkPiece{Data: part, FullDataHash: hash[:], PieceIndex: int32(i)},
		}})
	}
	return list
}

// assemble puts a file together from what next returns.
func assemble(next func() (*provisioner.FileUpload, error)) ([]byte, error) {
	var header *provisioner.DataUpload
	var data []byte
	for got := int32(0); header == nil || got < header.Chunks; {
		message, err := next()
		if err != nil {
			return nil, err
		}
		switch arm := message.Type.(type) {
		case *provisioner.FileUpload_DataUpload:
			header = arm.DataUpload
		case *provisioner.FileUpload_ChunkPiece:
			data = append(data, arm.ChunkPiece.Data...)
			got++
		case *provisioner.FileUpload_Error:
			return nil, fmt.Errorf("file error: %s", arm.Error.Error)
		default:
			return nil, fmt.Errorf("empty message")
		}
	}
	if sum := sha256.Sum256(data); string(sum[:]) != string(header.DataHash) || int64(len(data)) != header.FileSize {
		return nil, fmt.Errorf("the file is not what was announced")
	}
	return data, nil
}

// content is a file of a size that both sides can make.
func content(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i % 251)
	}
	return data
}
