#pragma once
// One pass of a convolution as a cuDNN graph, and the ways in which cuDNN would compute it. Nothing is run here, so
// that a GPU can be planned for that is not there.

#include "backend/cuda/cudnn_descriptor.hpp"
#include "backend/cuda/engine_table.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace tutti::cuda {

// Numbers of the tensors of a graph.
inline constexpr std::int64_t kInputTensor = 1;
inline constexpr std::int64_t kFilterTensor = 2;
inline constexpr std::int64_t kOutputTensor = 3;

// The GPU that is planned for.
class CudnnTarget {
 public:
  virtual ~CudnnTarget() = default;
  // Called for each graph, heuristic, engine and execution plan before it is finalized.
  virtual void name_in(CudnnDescriptor& descriptor) const = 0;
};

struct CudnnEngine {
  CudnnDescriptor configuration;
  CudnnDescriptor plan;
  std::size_t scratch_bytes = 0;

  EngineChoice choice() const;
  bool is_compiled_at_run_time() const;
};

class CudnnGraph {
 public:
  // The target is borrowed.
  CudnnGraph(const CudnnTarget& target, ConvolutionPass pass, const ConvolutionShape& shape);

  // The likely fastest first; empty where cuDNN cannot compute it. Engines are left out that could give other bits on
  // another day, or that are less precise than the shape asks for.
  std::vector<CudnnEngine> engines() const;
  // What choice() told, perhaps in another process; nothing where cuDNN does not know it.
  std::optional<CudnnEngine> engine(const EngineChoice& choice) const;

 private:
  std::vector<CudnnDescriptor> proposals(cudnnBackendHeurMode_t mode) const;
  bool allows(const CudnnDescriptor& engine) const;
  std::optional<CudnnEngine> build(CudnnDescriptor configuration) const;

  const CudnnTarget& target_;
  Precision precision_;
  CudnnDescriptor graph_;
};

}  // namespace tutti::cuda
