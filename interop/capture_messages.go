package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"example.org/interop/pb/provisioner"
	"example.org/interop/pb/provisionerd"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// captureMessages records one message per file. Most are filled by a rule that sets every field; `arm` picks the arm of
// the outermost oneof.
func captureMessages(folder string) error {
	text := func(name, about string, message proto.Message, json string) error {
		if err := protojson.Unmarshal([]byte(json), message); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return saveMessage(folder, name, about, message)
	}
	full := func(name string, message proto.Message, arm string) error {
		(&filler{arm: arm}).fill(message.ProtoReflect(), 0)
		return saveMessage(folder, name, "every field set", message)
	}
	job, done, failed := &provisionerd.AcquiredJob{}, &provisionerd.CompletedJob{}, &provisionerd.FailedJob{}
	request, response := &provisioner.Request{}, &provisioner.Response{}
	fresh := func(message proto.Message) proto.Message { return message.ProtoReflect().New().Interface() }
	for _, record := range []func() error{
		func() error { return text("acquired-empty", "a canceled acquire: no bytes", fresh(job), `{}`) },
		func() error { return full("acquired-template-dry-run", fresh(job), "template_dry_run") },
		func() error { return full("acquired-template-import", fresh(job), "template_import") },
		func() error { return full("acquired-workspace-build", fresh(job), "workspace_build") },
		func() error {
			return text("acquired-template-import-empty-arm", "an empty arm is written", fresh(job), `{"job_id":"b7","template_import":{}}`)
		},
		func() error {
			return text("agent-instance-id", "the other arm of auth", &provisioner.Agent{}, `{"name":"edge","instance_id":"i-0abc77"}`)
		},
		func() error {
			return text("agent-instance-id-empty", "an empty arm keeps its presence", &provisioner.Agent{}, `{"name":"edge","instance_id":""}`)
		},
		func() error { return full("commit-quota", &provisionerd.CommitQuotaRequest{}, "") },
		func() error {
			return text("commit-quota-response-unlimited", "a negative int32 takes ten bytes", &provisionerd.CommitQuotaResponse{}, `{"ok":true,"budget":-1}`)
		},
		func() error { return full("completed-template-dry-run", fresh(done), "template_dry_run") },
		func() error { return full("completed-template-import", fresh(done), "template_import") },
		func() error { return full("completed-workspace-build", fresh(done), "workspace_build") },
		func() error {
			return text("failed-missing-variable", "an error code and no arm", fresh(failed),
				`{"job_id":"b7","error":"required template variables: zone","error_code":"REQUIRED_TEMPLATE_VARIABLES"}`)
		},
		func() error { return full("failed-workspace-build", fresh(failed), "workspace_build") },
		func() error {
			failed := &provisionerd.FailedJob{JobId: "b7", Error: "stopped", Type: &provisionerd.FailedJob_WorkspaceBuild_{}}
			return saveMessage(folder, "failed-workspace-build-nil-arm", "an arm set to nothing", failed)
		},
		func() error { return full("file-request", &provisionerd.FileRequest{}, "") },
		func() error {
			return saveMessage(folder, "file-upload-header", "the header of a file", pieces([]byte("a module archive"))[0])
		},
		func() error {
			return saveMessage(folder, "file-upload-chunk", "piece 0: its index is not written", pieces([]byte("a module archive"))[1])
		},
		func() error { return full("file-upload-chunk-2", &provisioner.FileUpload{}, "chunk_piece") },
		func() error { return full("file-upload-error", &provisioner.FileUpload{}, "error") },
		func() error { return full("metadata-full", &provisioner.Metadata{}, "") },
		func() error { return full("resource-full", &provisioner.Resource{}, "") },
		func() error {
			return text("rich-parameter", "an explicit 0, and a negative bound", &provisioner.RichParameter{},
				`{"name":"cpus","type":"number","validation_min":0,"validation_max":-9,"options":[{"name":"few","value":"2"}],"form_type":"SLIDER"}`)
		},
		func() error { return full("session-apply", fresh(request), "apply") },
		func() error { return full("session-apply-complete", fresh(response), "apply") },
		func() error { return full("session-cancel", fresh(request), "cancel") },
		func() error { return full("session-config", fresh(request), "config") },
		func() error { return full("session-graph", fresh(request), "graph") },
		func() error { return full("session-graph-complete", fresh(response), "graph") },
		func() error { return full("session-init", fresh(request), "init") },
		func() error { return full("session-init-complete", fresh(response), "init") },
		func() error { return full("session-log", fresh(response), "log") },
		func() error { return full("session-parse", fresh(request), "parse") },
		func() error { return full("session-parse-complete", fresh(response), "parse") },
		func() error { return full("session-plan", fresh(request), "plan") },
		func() error { return full("session-plan-complete", fresh(response), "plan") },
		func() error { return full("timing", &provisioner.Timing{}, "") },
		func() error { return full("update-job", &provisionerd.UpdateJobRequest{}, "") },
		func() error { return full("update-job-response", &provisionerd.UpdateJobResponse{}, "") },
	} {
		if err := record(); err != nil {
			return err
		}
	}
	return nil
}

func saveMessage(folder, name, about string, message proto.Message) error {
	data, err := encoding{}.Marshal(message)
	if err != nil {
		return err
	}
	compact, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, compact, "", "  "); err != nil {
		return err
	}
	v := newVector("proto-"+name, "protobuf", about)
	fmt.Fprintf(v, "# message: %s\n# bytes: %d sha256: %x\n", message.ProtoReflect().Descriptor().FullName(), len(data), sha256.Sum256(data))
	for _, line := range strings.Split(text.String(), "\n") {
		fmt.Fprintf(v, "# %s\n", line)
	}
	v.line('=', data)
	return v.save(folder)
}

// filler sets every field to a value made from its name and a counter.
type filler struct {
	arm   string
	count int64
}

func (f *filler) fill(message protoreflect.Message, depth int) {
	if stamp, ok := message.Interface().(*timestamppb.Timestamp); ok {
		f.count++
		stamp.Seconds, stamp.Nanos = 1790000000+f.count, int32(f.count)*1000
		return
	}
	fields := message.Descriptor().Fields()
	for i := 0; i < fields.Len(); i++ {
		field := fields.Get(i)
		if oneof := field.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			first := oneof.Fields().Get(0)
			if depth == 0 && f.arm != "" {
				if string(field.Name()) != f.arm {
					continue
				}
			} else if field != first {
				continue
			}
		}
		switch {
		case field.IsMap():
			value := message.Mutable(field).Map()
			for _, key := range []string{"first", "second"} {
				value.Set(protoreflect.ValueOfString(key).MapKey(), f.scalar(field.MapValue()))
			}
		case field.IsList():
			list := message.Mutable(field).List()
			for n := 0; n < max(1, 2-depth); n++ {
				if field.Kind() == protoreflect.MessageKind {
					element := list.NewElement()
					f.fill(element.Message(), depth+1)
					list.Append(element)
				} else {
					list.Append(f.scalar(field))
				}
			}
		case field.Kind() == protoreflect.MessageKind:
			f.fill(message.Mutable(field).Message(), depth+1)
		default:
			message.Set(field, f.scalar(field))
		}
	}
}

func (f *filler) scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	f.count++
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("%s-%d", field.Name(), f.count))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, byte(f.count), 0xff})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(values.Len() - 1).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(f.count * 37))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(f.count * 100003)
	default:
		panic(fmt.Sprintf("no value for %s", field.FullName()))
	}
}
