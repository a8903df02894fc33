#pragma once
// The chosen cuDNN engines by pass and shape, as lines of text. Each line names the library's version and the GPU to
// which it applies, and ends with the engine's number and its knobs, type=value:
//   cuDNN 9.19.0 | NVIDIA H200 | forward bf16 256x28x28x64 to 64, 3x3 stride 1 padding 1 | 57 2=14 17=1
// The first proposal that computes correctly ends with "untimed": a run keeps it, but others need not.

#include "backend/cuda/convolution.hpp"

#include <map>
#include <optional>
#include <string>

namespace tutti::cuda {

// The library and device to which engines belong.
struct EngineOwner {
  std::string library;  // "cuDNN 9.19.0"
  std::string device;   // "NVIDIA H200"
};

// "forward bf16 256x28x28x64 to 64, 3x3 stride 1 padding 1"
std::string describe(ConvolutionPass pass, const ConvolutionShape& shape);

enum class ChosenBy { timing, proposal };

class EngineTable {
 public:
  explicit EngineTable(const EngineOwner& owner);

  std::optional<EngineChoice> find(const std::string& description) const;
  void note(const std::string& description, const EngineChoice& choice, ChosenBy by = ChosenBy::timing);

  std::string text() const;
  // Loads the lines for this library and GPU. False if there are lines, but none for these.
  bool adopt(const std::string& text);

 private:
  std::string owner_;                          // the prefix of its lines
  std::map<std::string, std::string> chosen_;  // by description
};

}  // namespace tutti::cuda
