// CUDA's capture and graph calls. A graph's nodes are scheduled like other work, with the captured dependencies, so
// that branches of a graph also run in any order.

#include "standin/finding.hpp"
#include "standin/runtime.hpp"

#include <unordered_map>
#include <unordered_set>
#include <utility>

using namespace tutti::standin;

namespace tutti::standin {
namespace {

cudaError_t begin_capture(CUstream_st& stream, cudaStreamCaptureMode mode) {
  if (&stream == &runtime().default_stream) return cudaErrorStreamCaptureUnsupported;
  if (stream.capture) return cudaErrorIllegalState;
  stream.capture = std::make_shared<Capture>();
  stream.capture->mode = mode;
  stream.capture->thread = std::this_thread::get_id();
  stream.capture->members.push_back({&stream, std::exchange(stream.tail, {})});
  std::erase_if(runtime().captures, [](const auto& capture) { return capture.expired(); });
  runtime().captures.push_back(stream.capture);
  return cudaSuccess;
}

// Whether all nodes come before the end of the stream that began the capture.
bool is_joined(const Capture& capture, const Point& end) {
  std::unordered_set<const Operation*> before;
  Point left = end;
  while (!left.empty()) {
    const auto node = left.back();
    left.pop_back();
    if (before.insert(node.get()).second) left.insert(left.end(), node->after.begin(), node->after.end());
  }
  return before.size() == capture.nodes.size();
}

cudaError_t end_capture(CUstream_st& stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream.capture) return cudaErrorIllegalState;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture->members.front().stream != &stream) return cudaErrorStreamCaptureUnmatched;
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  const Point end = stream.tail;
  for (Capture::Member& member : capture->members) {
    member.stream->capture.reset();
    member.stream->tail = std::move(member.tail_before);
  }
  capture->active = false;
  if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
  if (!is_joined(*capture, end)) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{capture->nodes};
  runtime().handles.insert(*graph);
  return cudaSuccess;
}

// Each launch is ordered after the one before it, on any stream.
void launch_graph(CUgraphExec_st& graph, CUstream_st& stream) {
  ++runtime().enqueued.calls["graph"];
  Point start = stream.tail;
  join(start, graph.last_launch);
  std::unordered_map<const Operation*, std::shared_ptr<Operation>> copies;
  Point all = start;
  for (const auto& node : graph.nodes) {
    auto operation = std::make_shared<Operation>();
    operation->work = node->work;
    operation->can_run = node->can_run;
    operation->lane = stream.lane + node->lane;
    operation->kind = node->kind;
    ++runtime().enqueued.work[node->kind];
    operation->after = start;
    for (const auto& before : node->after) operation->after.push_back(copies.at(before.get()));
    copies[node.get()] = operation;
    all.push_back(operation);
  }
  for (const auto& node : graph.nodes) runtime().schedule.add(copies.at(node.get()));
  stream.tail.clear();
  join(stream.tail, all);
  graph.last_launch = stream.tail;
}

template <class Handle>
cudaError_t destroy(Handle* handle, const char* what) {
  const Lock lock;
  refuse_dead(handle, what);
  runtime().handles.erase(handle);
  delete handle;
  return cudaSuccess;
}

}  // namespace
}  // namespace tutti::standin

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock;
  return fail(begin_capture(stream_of(stream), mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock;
  return fail(end_capture(stream_of(stream), graph));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock;
  const auto& capture = stream_of(stream).capture;
  *status = !capture         ? cudaStreamCaptureStatusNone
            : capture->valid ? cudaStreamCaptureStatusActive
                             : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  const Lock lock;
  refuse_dead(graph, "a graph");
  *executable = new CUgraphExec_st{graph->nodes, {}};
  runtime().handles.insert(*executable);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Lock lock;
  refuse_dead(executable, "an executable graph");
  CUstream_st& on = stream_of(stream);
  if (on.capture) throw Finding("nested graphs are not supported");
  launch_graph(*executable, on);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return destroy(graph, "a graph"); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return destroy(executable, "an executable graph"); }

}  // extern "C"
