#include "screen.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/nn/network_instance.hpp"
#include "tutti/train/trainer_options.hpp"
#include "tutti/watch/rehearsal.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <system_error>
#include <thread>

namespace tutti {
namespace {

// Layers that lenet does not have, with channels that fill the registers of all processors.
constexpr const char* kResidual = R"(
name = "residual"
init = "kaiming"
layer = [
  {name = "stem.conv", type = "conv2d", channels = 32, kernel = 3, padding = 1, bias = false},
  {name = "stem.norm", type = "batch-norm", relu = true},
  {name = "block1.conv1", type = "conv2d", channels = 32, kernel = 3, padding = 1, bias = false},
  {name = "block1.norm1", type = "batch-norm", relu = true},
  {name = "block1.conv2", type = "conv2d", channels = 32, kernel = 3, padding = 1, bias = false},
  {name = "block1.norm2", type = "batch-norm", residual = "stem.norm", add = true, relu = true},
  {name = "block2.shortcut", type = "conv2d", channels = 64, kernel = 1, stride = 2, bias = false},
  {name = "block2.conv1", type = "conv2d", input = "block1.norm2", channels = 64, kernel = 3, stride = 2, padding = 1},
  {name = "block2.act", type = "gelu"},
  {name = "block2.conv2", type = "conv2d", channels = 64, kernel = 5, padding = 2},
  {name = "block2.add", type = "add", residual = "block2.shortcut"},
  {name = "pool", type = "average-pool2d", kernel = 2},
  {name = "dropout", type = "dropout", rate = 0.25},
  {name = "global", type = "global-average-pool"},
  {name = "head", type = "linear", units = "classes"},
]
)";

constexpr int kClasses = 10;
constexpr std::int64_t kSamples = 16;
constexpr int kSteps = 2;  // of each training
constexpr std::array kPrecisions{Precision::fp32, Precision::bf16};
constexpr std::uint64_t kSeed = 1;

const std::vector<Network>& networks() {
  static const std::vector<Network> all{Network(built_in_model("lenet"), Shape{1, 28, 28}, kClasses),
                                        Network(parse_model(kResidual, "screen"), Shape{3, 16, 16}, kClasses)};
  return all;
}

// Between -1 and 1.
float value_at(std::uint64_t index) { return static_cast<float>(mix64(index + 1) >> 40) * 0x1p-23F - 1; }

// Memory of a backend, with such values.
Buffer random_values(Backend& backend, Stream& stream, std::int64_t elements) {
  std::vector<float> pattern(static_cast<std::size_t>(std::min<std::int64_t>(elements, 1 << 22)));
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = value_at(i);
  Buffer buffer = backend.allocate(static_cast<std::size_t>(elements) * sizeof(float));
  for (std::int64_t begin = 0; begin < elements; begin += std::ssize(pattern)) {
    const Shape piece{std::min<std::int64_t>(elements - begin, std::ssize(pattern))};
    backend.copy(stream, buffer.view(piece, ElementType::f32, static_cast<std::size_t>(begin) * sizeof(float)),
                 {pattern.data(), piece, ElementType::f32, MemorySpace::host});
  }
  stream.synchronize();
  return buffer;
}

// A training of one network in one precision on one unit.
class ScreenedTraining {
 public:
  // All borrowed; `backend` is the one whose layers are used.
  ScreenedTraining(const Network& network, Backend& backend, Stream& stream)
      : network_(network),
        backend_(backend),
        stream_(stream),
        arena_(network.layout(), backend, backend.allocate(network.layout().block_bytes())),
        weights_(network, backend, arena_.weights()),
        instance_(network, weights_, backend),
        images_(random_values(backend, stream, network.sample().batch_of(kSamples).elements())),
        labels_(backend.allocate(kSamples * sizeof(std::int32_t))),
        initial_(backend.allocate(network.layout().block_bytes())),
        velocity_(backend.allocate(network.layout().block_bytes())),
        sums_(backend.allocate(sizeof(LossSums::Fields))) {
    std::vector<std::int32_t> labels;
    for (std::int32_t i = 0; i < kSamples; ++i) labels.push_back(i % kClasses);
    backend.copy(stream, labels_view(), {labels.data(), Shape{kSamples}, ElementType::i32, MemorySpace::host});
    initialize(network, network.spec().initializer, kSeed, backend, initial());
    instance_.plan(kSamples, LayerMode::training);
    stream.synchronize();
  }

  // Trains from the initial weights. `before_step` is called before every step.
  void run(std::vector<std::uint64_t>& digests, const std::function<void()>& before_step) {
    backend_.copy(stream_, arena_.weights(), initial());
    const Tensor velocity = velocity_.view(arena_.trained_weights().shape, ElementType::f32);
    backend_.fill_zero(stream_, velocity);
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      before_step();
      weights_.refresh(stream_);
      std::ranges::copy(instance_.trace(stream_, pass_of(step)), std::back_inserter(digests));
      backend_.sgd_step(stream_, {.weights = arena_.trained_weights(),
                                  .gradients = arena_.trained_gradients(),
                                  .velocity = velocity,
                                  .learning_rate = 0.0625F,
                                  .momentum = 0.875F});
      update_statistics(backend_, stream_, network_.layout(), {arena_.weights(), arena_.gradients()});
      digests.push_back(digest_of(backend_, stream_, arena_.weights(), network_.layout().slices()));
    }
  }

 private:
  Tensor initial() const { return initial_.view(arena_.weights().shape, ElementType::f32); }
  Tensor labels_view() const { return labels_.view(Shape{kSamples}, ElementType::i32); }
  TrainPass pass_of(std::uint32_t step) const {
    return {.images = images_.view(network_.sample().batch_of(kSamples), ElementType::f32),
            .labels = {labels_view()},
            .gradient_scale = 1.0F / kSamples,
            .sums = sums_.view(Shape{LossSums::kFields}, ElementType::i64),
            .gradients = arena_.gradients(),
            .place = {.seed = kSeed, .step = step}};
  }

  const Network& network_;
  Backend& backend_;
  Stream& stream_;
  ParameterArena arena_;
  NetworkWeights weights_;
  NetworkInstance instance_;
  Buffer images_;
  Buffer labels_;
  Buffer initial_;
  Buffer velocity_;
  Buffer sums_;
};

// Adds tensors that are larger than a core's share of the caches.
class MemoryTest {
 public:
  MemoryTest(Backend& backend, Stream& stream, std::size_t bytes)
      : backend_(backend),
        stream_(stream),
        values_{Shape{static_cast<std::int64_t>(bytes / sizeof(float))}},
        from_(random_values(backend, stream, values_.elements())),
        to_(backend.allocate(bytes)) {}

  // Returns the bytes per second.
  double run(std::vector<std::uint64_t>& digests) {
    const Tensor to = to_.view(values_, ElementType::f32);
    backend_.fill_zero(stream_, to);
    stream_.synchronize();
    const Stopwatch time;
    backend_.add(stream_, to, from_.view(values_, ElementType::f32));
    stream_.synchronize();
    const double rate = 3 * static_cast<double>(to.bytes()) / time.seconds();
    const DigestedTensor sum{to};
    digests.push_back(digest_of(backend_, stream_, {&sum, 1}));
    return rate;
  }

 private:
  Backend& backend_;
  Stream& stream_;
  Shape values_;
  Buffer from_;
  Buffer to_;
};

void bind_to(int core) {
  std::vector<cpu_set_t> one(static_cast<std::size_t>(core / CPU_SETSIZE) + 1);
  CPU_SET(core % CPU_SETSIZE, &one.back());
  const int failure = ::pthread_setaffinity_np(::pthread_self(), one.size() * sizeof one[0], one.data());
  if (failure == 0) return;
  throw Error(ErrorSource::input, fmt::format("cannot run on core {}: {}; start the program with cores that are online "
                                              "and allowed (taskset, srun --cpus-per-task)",
                                              core, std::generic_category().message(failure)));
}

struct Precise {
  std::unique_ptr<Backend> own{};
  std::unique_ptr<Backend> rehearsed{};  // null without faults
  std::unique_ptr<Stream> stream{};
  Backend& used() const { return rehearsed ? *rehearsed : *own; }
};

ScreenedUnit screen_unit(const ScreenPlan& plan, double seconds) {
  const Stopwatch since;
  if (plan.core) bind_to(*plan.core);
  ScreenedUnit unit{.host = plan.host, .name = plan.name, .kind = ""};
  const Log log(plan.number, plan.host, false);
  FaultInjector faults(log);
  faults.begin(plan.faults, {});
  std::vector<Precise> backends;
  const auto open = [&](Precision precision) {
    Precise& opened = backends.emplace_back(Precise{.own = plan.make_backend(precision)});
    opened.own->enter_compute_thread(1);
    opened.stream = opened.own->make_stream();
    if (!plan.faults.empty()) opened.rehearsed = faults.wrap(*opened.own);
  };
  for (const Precision precision : kPrecisions) open(precision);
  unit.kind = processor_kind(backends.front().own->description());
  std::vector<std::unique_ptr<ScreenedTraining>> trainings;
  for (const Precise& backend : backends) {
    for (const Network& network : networks()) {
      trainings.push_back(std::make_unique<ScreenedTraining>(network, backend.used(), *backend.stream));
    }
  }
  MemoryTest memory(*backends.front().own, *backends.front().stream, plan.memory_bytes);

  std::int64_t step = 0;
  const auto before_step = [&] { faults.on_begin({.step = ++step, .phase = Phase::forward}); };
  std::vector<double> step_seconds;
  std::vector<double> rates;
  while (unit.rounds < 2 || since.seconds() < seconds) {
    std::vector<std::uint64_t> digests;
    const Stopwatch time;
    for (const auto& training : trainings) training->run(digests, before_step);
    step_seconds.push_back(time.seconds() / static_cast<double>(trainings.size() * kSteps));
    rates.push_back(memory.run(digests));
    if (++unit.rounds == 1) {
      unit.digests = digests;
      step_seconds.clear();  // which includes making plans
      rates.clear();
    } else if (!unit.changed && digests != unit.digests) {
      unit.changed = std::ranges::mismatch(unit.digests, digests).in1 - unit.digests.begin();
    }
  }
  for (const Fault& fault : faults.untriggered())
    log.warn(fmt::format("rehearsal: never injected: {}", text_of(fault)));
  unit.step_seconds = quartiles_of(step_seconds).median;
  unit.bytes_per_second = quartiles_of(rates).median;
  return unit;
}

// The first index at which the unit differs from other digests.
std::size_t first_difference(const ScreenedUnit& unit, const std::vector<std::uint64_t>& other) {
  return static_cast<std::size_t>(std::ranges::mismatch(unit.digests, other).in1 - unit.digests.begin());
}

}  // namespace

std::vector<ScreenedUnit> screen(const std::vector<ScreenPlan>& plans, double seconds) {
  static_cast<void>(networks());  // before threads use them
  std::vector<ScreenedUnit> units(plans.size());
  std::vector<std::exception_ptr> failures(plans.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          units[i] = screen_unit(plans[i], seconds);
        } catch (const Error& error) {
          const std::string text = fmt::format("{} on {}: {}", plans[i].name, plans[i].host, error.what());
          failures[i] = std::make_exception_ptr(Error(error.source(), text, error.where()));
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return units;
}

std::vector<ScreenedValue> screened_values() {
  std::vector<ScreenedValue> values;
  for (const Precision precision : kPrecisions) {
    for (const Network& network : networks()) {
      const std::string within = fmt::format(" ({}, {})", network.spec().name, name_of(precision));
      const auto add = [&](const std::string& layer, const char* pass, const std::string& text) {
        values.push_back({network.spec().name, precision, layer, pass, text + within});
      };
      for (int step = 0; step < kSteps; ++step) {
        for (std::size_t i = 0; i < NetworkInstance::traced_values(network); ++i) {
          const TracedValue traced = NetworkInstance::traced_value(network, i);
          const char* const pass = traced.is_backward ? "backward" : "forward";
          add(traced.layer, pass, fmt::format("the {} pass of {}", pass, traced.layer));
        }
        add("weights", "update", "the update of the weights");
      }
    }
  }
  values.push_back({.network = "", .layer = "memory", .pass = "add", .text = "a sum in memory"});
  return values;
}

std::int64_t screened_steps() { return kSteps * std::ssize(networks()) * std::ssize(kPrecisions); }

std::vector<std::string> screened_layers() {
  std::vector<std::string> layers;
  for (const Network& network : networks()) {
    for (const NetworkLayer& layer : network.layers()) layers.push_back(layer.name);
  }
  return layers;
}

std::vector<std::uint64_t> shipped_digests(const std::string& kind) {
  if (kind != "cpu") return {};
  return {
#include "screen_digests.inc"
  };
}

std::vector<WrongUnit> find_wrong(const std::vector<ScreenedUnit>& units,
                                  const std::map<std::string, std::vector<std::uint64_t>>& shipped) {
  std::map<std::string, std::vector<std::size_t>> steady;  // by kind
  std::vector<WrongUnit> wrong;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i].changed) {
      wrong.push_back({.unit = i, .reason = WrongReason::changed, .digest = *units[i].changed});
    } else {
      steady[units[i].kind].push_back(i);
    }
  }
  for (const auto& [kind, members] : steady) {
    std::map<std::vector<std::uint64_t>, std::size_t> votes;
    for (const std::size_t member : members) ++votes[units[member].digests];
    const auto known = shipped.find(kind);
    const bool has_shipped = known != shipped.end() && !known->second.empty();
    auto right = has_shipped ? votes.find(known->second) : votes.end();
    const bool is_alone = right == votes.end() && has_shipped && members.size() == 1;
    if (right == votes.end() && !is_alone) {
      right = std::ranges::find_if(votes, [&](const auto& vote) { return 2 * vote.second > members.size(); });
    }
    for (const std::size_t member : members) {
      const ScreenedUnit& unit = units[member];
      if (is_alone) {
        wrong.push_back({member, WrongReason::unlike_shipped, first_difference(unit, known->second)});
      } else if (right == votes.end()) {
        const auto other = std::ranges::find_if(votes, [&](const auto& vote) { return vote.first != unit.digests; });
        wrong.push_back({member, WrongReason::undecided, first_difference(unit, other->first)});
      } else if (right->first != unit.digests) {
        wrong.push_back({member, WrongReason::minority, first_difference(unit, right->first), right->second});
      }
    }
  }
  std::ranges::sort(wrong, {}, &WrongUnit::unit);
  return wrong;
}

}  // namespace tutti
