#include "tutti/train/evaluation.hpp"

#include "evaluator.hpp"
#include "state_arrays.hpp"

namespace tutti {

LossSums evaluate(const EvaluationRequest& request, const TrainState& state) {
  Backend& backend = request.backend;
  backend.enter_compute_thread(request.threads);
  const ParameterLayout& layout = request.network.layout();
  const Buffer memory = backend.allocate(layout.block_bytes());
  const Tensor block = memory.view(Shape{layout.block_elements()}, ElementType::f32);
  const auto stream = backend.make_stream();
  stream->while_waiting([&request] { request.communicator.progress(); });
  fill_from_arrays(backend, *stream, block, layout.trained(), "", state.parameters);
  fill_from_arrays(backend, *stream, block, layout.statistics(), "", state.statistics);

  RankStatus own_whereabouts;
  NetworkWeights weights(request.network, backend, block);
  PartTeam team({.network = request.network,
                 .weights = weights,
                 .backend = backend,
                 .stream = *stream,
                 .players = request.side_by_side,
                 .threads = request.threads,
                 .rank_status = request.rank_status == nullptr ? own_whereabouts : *request.rank_status});
  team.rank_status().enter(Phase::evaluation);
  Evaluator evaluator({request.data, request.recipe}, backend, request.communicator, team);
  weights.refresh(*stream);
  if (request.scores == nullptr) return evaluator.run(*stream);
  return evaluator.run(*stream, *request.scores, request.network.classes());
}

}  // namespace tutti
