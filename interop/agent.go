package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"example.org/interop/pb/agent"
	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"storj.io/drpc"
	"storj.io/drpc/drpcconn"
	"storj.io/drpc/drpcerr"
)

// agentRun is one connection of an agent, over the libraries that official agents use.
type agentRun struct {
	session *yamux.Session
}

func (a *agentRun) call(rpc string, request, answer drpc.Message) error {
	stream, err := a.session.Open()
	if err != nil {
		return err
	}
	conn := drpcconn.New(stream)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := conn.Invoke(ctx, "/coder.agent.v2.Agent/"+rpc, encoding{}, request, answer); err != nil {
		return fmt.Errorf("%s: %w", rpc, err)
	}
	return nil
}

// runAgent connects with a token in the cookie, as official agents do, makes every call that such an agent depends on, and
// reports what came back.
func runAgent(url, token string) error {
	ctx := context.Background()
	socket, _, err := websocket.Dial(ctx, url+"/api/v2/workspaceagents/me/rpc?version=2.7", &websocket.DialOptions{
		CompressionMode: websocket.CompressionDisabled,
		HTTPHeader:      http.Header{"Cookie": {"coder_session_token=" + token}},
	})
	if err != nil {
		return err
	}
	socket.SetReadLimit(4 << 20)
	session, err := yamux.Client(websocket.NetConn(ctx, socket, websocket.MessageBinary), muxConfig())
	if err != nil {
		return err
	}
	a := &agentRun{session}
	manifest := &agent.Manifest{}
	if err := a.call("GetManifest", &agent.GetManifestRequest{}, manifest); err != nil {
		return err
	}
	if err := checkManifest(manifest); err != nil {
		return err
	}
	monitoring := &agent.GetResourcesMonitoringConfigurationResponse{}
	stats := &agent.UpdateStatsResponse{}
	logs := &agent.BatchCreateLogsResponse{}
	script := manifest.Scripts[0]
	now := timestamppb.Now()
	for _, step := range []func() error{
		func() error {
			return a.call("GetAnnouncementBanners", &agent.GetAnnouncementBannersRequest{}, &agent.GetAnnouncementBannersResponse{})
		},
		func() error {
			return a.call("UpdateStartup", &agent.UpdateStartupRequest{Startup: &agent.Startup{
				Version: "v2.30.0", ExpandedDirectory: manifest.Directory,
			}}, &agent.Startup{})
		},
		func() error {
			return a.call("GetResourcesMonitoringConfiguration", &agent.GetResourcesMonitoringConfigurationRequest{}, monitoring)
		},
		func() error { return a.call("UpdateStats", &agent.UpdateStatsRequest{}, stats) },
		func() error { return a.lifecycle(agent.Lifecycle_STARTING) },
		func() error {
			return a.call("BatchCreateLogs", &agent.BatchCreateLogsRequest{LogSourceId: script.LogSourceId, Logs: []*agent.Log{
				{CreatedAt: now, Output: "hello from Go", Level: agent.Log_INFO},
			}}, logs)
		},
		func() error {
			return a.call("ScriptCompleted", &agent.WorkspaceAgentScriptCompletedRequest{Timing: &agent.Timing{
				ScriptId: script.Id, Start: now, End: now, Stage: agent.Timing_START, Status: agent.Timing_OK,
			}}, &agent.WorkspaceAgentScriptCompletedResponse{})
		},
		func() error {
			return a.call("BatchUpdateMetadata", &agent.BatchUpdateMetadataRequest{Metadata: []*agent.Metadata{
				{Key: manifest.Metadata[0].Key, Result: &agent.WorkspaceAgentMetadata_Result{CollectedAt: now, Value: "42%"}},
			}}, &agent.BatchUpdateMetadataResponse{})
		},
		func() error {
			return a.call("ReportConnection", &agent.ReportConnectionRequest{Connection: &agent.Connection{
				Id: script.Id, Action: agent.Connection_CONNECT, Type: agent.Connection_SSH, Timestamp: now, Ip: "127.0.0.1",
			}}, &emptypb.Empty{})
		},
		func() error { return a.lifecycle(agent.Lifecycle_READY) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if stats.ReportInterval.AsDuration() < time.Second {
		return fmt.Errorf("the interval of stats is %v", stats.ReportInterval.AsDuration())
	}
	if monitoring.Config.GetNumDatapoints() < 1 || monitoring.Config.GetCollectionIntervalSeconds() < 1 {
		return fmt.Errorf("official agents crash with the monitoring %v", monitoring)
	}
	unknown := a.call("Unknown", &agent.GetManifestRequest{}, &agent.Manifest{})
	if code := drpcerr.Code(unknown); code != drpcerr.Unimplemented {
		return fmt.Errorf("an unknown call has code %d: %v", code, unknown)
	}
	report(map[string]any{"agent_name": manifest.AgentName, "log_limit_exceeded": logs.LogLimitExceeded})
	return session.Close()
}

func (a *agentRun) lifecycle(state agent.Lifecycle_State) error {
	request := &agent.UpdateLifecycleRequest{Lifecycle: &agent.Lifecycle{State: state, ChangedAt: timestamppb.Now()}}
	return a.call("UpdateLifecycle", request, &agent.Lifecycle{})
}

// checkManifest has the rules by which official agents refuse a manifest.
func checkManifest(manifest *agent.Manifest) error {
	if len(manifest.AgentId) != 16 || len(manifest.WorkspaceId) != 16 {
		return fmt.Errorf("ids have %d and %d bytes", len(manifest.AgentId), len(manifest.WorkspaceId))
	}
	if manifest.DerpMap.GetHomeParams() == nil {
		return fmt.Errorf("the DERP map has no home parameters")
	}
	for _, app := range manifest.Apps {
		if app.SharingLevel == 0 || app.Health == 0 || app.Healthcheck == nil {
			return fmt.Errorf("app %q is incomplete", app.Slug)
		}
	}
	for _, item := range manifest.Metadata {
		if item.Interval.AsDuration() > time.Second {
			return fmt.Errorf("the interval of %q counts seconds: %v", item.Key, durationpb.New(item.Interval.AsDuration()))
		}
	}
	return nil
}
