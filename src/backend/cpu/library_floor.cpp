#include "tutti/backend/library_floor.hpp"

#include "tutti/base/stopwatch.hpp"

#include "backend/cpu/check.hpp"
#include "backend/cpu/floor_plans.hpp"
#include "backend/cpu/library.hpp"
#include "backend/cpu/memory.hpp"
#include "backend/cpu/primitive.hpp"
#include "backend/cpu/register_loops.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

namespace tutti {
namespace cpu {
namespace {

constexpr std::array kArguments{DNNL_ARG_SRC,       DNNL_ARG_WEIGHTS,    DNNL_ARG_BIAS,      DNNL_ARG_DST,
                                DNNL_ARG_MEAN,      DNNL_ARG_VARIANCE,   DNNL_ARG_SCALE,     DNNL_ARG_SHIFT,
                                DNNL_ARG_WORKSPACE, DNNL_ARG_DIFF_SRC,   DNNL_ARG_DIFF_DST,  DNNL_ARG_DIFF_WEIGHTS,
                                DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};

// The primitives of one layer. Their arguments lie one behind the other in memory that all layers share; what several
// passes take, as the workspace that the forward one leaves to the others, lies in one place.
class FloorLayerPasses {
 public:
  FloorLayerPasses(const dnnl::engine& engine, const FloorPasses& passes) {
    for (const FloorPass& pass : passes) {
      Arguments arguments;
      for (const int name : kArguments) {
        const Desc desc = pass.plan.query_md(dnnl::query::exec_arg_md, name);
        if (desc.get_size() > 0) arguments.emplace(name, place_of(engine, name, desc).memory());
      }
      passes_.push_back({pass.seconds, Primitive(engine, pass.plan, std::move(arguments))});
    }
  }

  std::size_t bytes() const { return bytes_; }
  PrimitiveTimes time(CpuStream& stream, std::byte* shared);

 private:
  struct Argument {
    int name;
    Desc desc;
    Placed memory;
    std::size_t offset;
  };
  struct Pass {
    double PrimitiveTimes::*seconds;
    Primitive primitive;
  };

  const Placed& place_of(const dnnl::engine& engine, int name, const Desc& desc) {
    const auto known = std::ranges::find_if(
        arguments_, [&](const Argument& argument) { return argument.name == name && argument.desc == desc; });
    if (known != arguments_.end()) return known->memory;
    // No two begin at the same place of a page, where a load may wait for a store to the other.
    constexpr std::size_t kPage = 4096;
    constexpr std::size_t kApart = 320;
    arguments_.push_back({name, desc, Placed(engine, desc), bytes_});
    bytes_ += (desc.get_size() + kPage - 1) / kPage * kPage + kApart;
    return arguments_.back().memory;
  }

  std::deque<Argument> arguments_;
  std::vector<Pass> passes_;
  std::size_t bytes_ = 0;
};

// Numbers that are neither zero nor denormal, nor ever become so large, as f32 and as bf16.
void fill_with_numbers(std::byte* memory, std::size_t bytes) {
  std::array<std::uint16_t, 256> numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint16_t>(0x3c00 + i * 7 % 64);
  for (std::size_t at = 0; at < bytes; at += sizeof numbers) {
    std::memcpy(memory + at, numbers.data(), std::min(sizeof numbers, bytes - at));
  }
}

PrimitiveTimes FloorLayerPasses::time(CpuStream& stream, std::byte* shared) {
  fill_with_numbers(shared, bytes_);
  for (Argument& argument : arguments_) argument.memory.place(shared + argument.offset);
  PrimitiveTimes times;
  for (Pass& pass : passes_) {
    pass.primitive.run(stream);
    stream.synchronize();
    const Stopwatch watch;
    pass.primitive.run(stream);
    stream.synchronize();
    times.*pass.seconds = watch.seconds();
  }
  return times;
}

// Seconds that `task`, done once by each thread of the team, takes.
double time_team(Team& team, const std::function<void(int)>& task) {
  const Stopwatch watch;
  team.run(team.size(), task);
  return watch.seconds();
}

double operations_per_second(Team& team, const RegisterLoop& loop) {
  if (loop.run == nullptr) return 0;
  constexpr std::int64_t kRounds = 1'000'000;
  std::vector<float> sums(static_cast<std::size_t>(team.size()));
  const double seconds =
      time_team(team, [&](int thread) { sums[static_cast<std::size_t>(thread)] = loop.run(kRounds); });
  return team.size() * static_cast<double>(kRounds) * loop.operations / seconds;
}

}  // namespace
}  // namespace cpu

class LibraryFloor::Measured {
 public:
  Measured(Precision precision, std::span<const FloorLayer> layers)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const cpu::Type type = cpu::compute_type(precision);
    std::vector<std::vector<cpu::FloorLayerPasses>> candidates;
    std::size_t bytes = 2 * kCopiedBytes;
    for (const FloorLayer& layer : layers) {
      auto& passes = candidates.emplace_back();
      for (const cpu::FloorPasses& plans : cpu::plan_floor(engine_, type, layer)) {
        bytes = std::max(bytes, passes.emplace_back(engine_, plans).bytes());
      }
    }
    memory_ = cpu::allocate_host(bytes);
    for (auto& passes : candidates) layers_.push_back(fastest(std::move(passes)));
  }

  std::vector<std::optional<PrimitiveTimes>> time_primitives() {
    std::vector<std::optional<PrimitiveTimes>> times;
    for (auto& layer : layers_) {
      times.push_back(layer ? std::optional(layer->time(stream_, shared())) : std::nullopt);
    }
    return times;
  }

  ProcessorRates measure_processor() {
    cpu::Team& team = stream_.team();
    const std::size_t share = kCopiedBytes / static_cast<std::size_t>(team.size());
    const double copying = cpu::time_team(team, [&](int thread) {
      std::byte* const to = shared() + static_cast<std::size_t>(thread) * share;
      std::memcpy(to, to + kCopiedBytes, share);
    });
    return {.f32_operations = cpu::operations_per_second(team, cpu::f32_register_loop()),
            .bf16_operations = cpu::operations_per_second(team, cpu::bf16_register_loop()),
            .copied_bytes = 2.0 * static_cast<double>(share) * team.size() / copying};
  }

 private:
  static constexpr std::size_t kCopiedBytes = std::size_t{64} << 20;

  std::byte* shared() { return static_cast<std::byte*>(memory_.data()); }

  std::optional<cpu::FloorLayerPasses> fastest(std::vector<cpu::FloorLayerPasses> candidates) {
    std::optional<cpu::FloorLayerPasses> best;
    double least = 0;
    for (cpu::FloorLayerPasses& candidate : candidates) {
      const auto seconds = [&] { return candidate.time(stream_, shared()).total(); };
      const double took = candidates.size() == 1 ? 0 : std::min(seconds(), seconds());
      if (best && took >= least) continue;
      best.emplace(std::move(candidate));
      least = took;
    }
    return best;
  }

  dnnl::engine engine_;
  cpu::CpuStream stream_;
  Buffer memory_;
  std::vector<std::optional<cpu::FloorLayerPasses>> layers_;
};

LibraryFloor::LibraryFloor(Precision precision, std::span<const FloorLayer> layers)
    : measured_(cpu::check([] { return "planning the library's own primitives"; },
                           [&] { return std::make_unique<Measured>(precision, layers); })) {}
LibraryFloor::~LibraryFloor() = default;

std::vector<std::optional<PrimitiveTimes>> LibraryFloor::time_primitives() {
  return cpu::check([] { return "running the library's own primitives"; },
                    [&] { return measured_->time_primitives(); });
}

ProcessorRates LibraryFloor::measure_processor() { return measured_->measure_processor(); }

}  // namespace tutti
