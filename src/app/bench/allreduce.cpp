#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/process.hpp"
#include "tutti/comm/communicator.hpp"

#include "bench.hpp"
#include "processors.hpp"
#include "run_config.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// One all-reduce implementation.
struct Contender {
  std::string algorithm;
  std::shared_ptr<Communicator> communicator;
  const char* meaning = "";
  bool exact = false;  // on a fixed-point grid, as --exchange exact
};

constexpr std::array kRingAlgorithms{std::pair{AllReduceAlgorithm::ring, "each rank sends to the next"},
                                     std::pair{AllReduceAlgorithm::direct, "each rank sends to all others"},
                                     std::pair{AllReduceAlgorithm::shared_memory, "through shared memory of a host"}};

// The values of a rank and their sum over the ranks: integers, so that every partial sum is exact in f32.
float value_of(std::int64_t element, int rank) { return static_cast<float>((element + 7 * rank) % 61 - 30); }
float expected_sum(std::int64_t element, int ranks) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value_of(element, rank);
  return sum;
}

// A message of one size and its all-reduce by one contender.
class Sums {
 public:
  Sums(Backend& backend, const Contender& contender, std::int64_t elements)
      : backend_(backend),
        communicator_(*contender.communicator),
        elements_(elements),
        stream_(backend.make_stream()),
        values_(communicator_.allocate(static_cast<std::size_t>(elements) * sizeof(float))) {
    if (contender.exact) make_grid();
  }

  void once() {
    if (sums_.bytes() > 0) {
      sum_exactly();
    } else {
      communicator_.all_reduce(values(0, elements_), *stream_);
    }
    wait();
  }

  void align() {
    communicator_.all_reduce(values(0, 1), *stream_);
    wait();
  }

  // Returns the number of wrong elements in a result. Leaves zeros.
  std::int64_t count_wrong() {
    std::vector<float> host(static_cast<std::size_t>(elements_));
    const Tensor on_host{host.data(), Shape{elements_}};
    for (std::int64_t i = 0; i < elements_; ++i) {
      host[static_cast<std::size_t>(i)] = value_of(i, communicator_.rank());
    }
    backend_.copy(*stream_, values(0, elements_), on_host);
    once();
    backend_.copy(*stream_, on_host, values(0, elements_));
    backend_.fill_zero(*stream_, values(0, elements_));
    stream_->synchronize();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < elements_; ++i) {
      wrong += static_cast<std::int64_t>(host[static_cast<std::size_t>(i)] != expected_sum(i, communicator_.size()));
    }
    return wrong;
  }

 private:
  Tensor values(std::int64_t begin, std::int64_t end) const {
    return values_.view(Shape{end - begin}, ElementType::f32, static_cast<std::size_t>(begin) * sizeof(float));
  }
  Tensor sums(std::int64_t begin, std::int64_t end) const {
    return sums_.view(Shape{end - begin}, ElementType::i32, static_cast<std::size_t>(begin) * sizeof(std::int32_t));
  }
  // The grid of a block of one slice, in steps of 2^-8.
  FixedPointGrid grid() const {
    return {.ends = facts_.view(Shape{1}, ElementType::i64), .exponents = facts_.view(Shape{1}, ElementType::i32, 8)};
  }
  void wait() {
    communicator_.finish(*stream_);
    stream_->synchronize();
  }

  void make_grid() {
    sums_ = communicator_.allocate(static_cast<std::size_t>(elements_) * sizeof(std::int32_t));
    facts_ = backend_.allocate(3 * sizeof(std::int64_t));
    std::int32_t exponent = 8;
    backend_.copy(*stream_, grid().ends, {&elements_, Shape{1}, ElementType::i64});
    backend_.copy(*stream_, grid().exponents, {&exponent, Shape{1}, ElementType::i32});
    stream_->synchronize();
  }

  // As --exchange exact reduces a bucket of gradients.
  void sum_exactly() {
    backend_.to_fixed_point(*stream_, grid(),
                            {.values = values(0, elements_),
                             .sums = sums(0, elements_),
                             .first = true,
                             .largest = facts_.view(Shape{1}, ElementType::i32, 16)});
    std::vector<std::int64_t> bounds;
    const int ranks = communicator_.size();
    for (int rank = 0; rank <= ranks; ++rank) bounds.push_back(elements_ * rank / ranks);
    const auto convert = [this](Stream& on, std::int64_t begin, std::int64_t end) {
      backend_.from_fixed_point(on, grid(), {.sums = sums(begin, end), .values = values(begin, end), .offset = begin});
    };
    communicator_.reduce_scatter_gather(
        {.values = sums(0, elements_), .bounds = bounds, .transform_shard = convert, .results = values(0, elements_)},
        *stream_);
  }

  Backend& backend_;
  Communicator& communicator_;
  std::int64_t elements_;
  std::unique_ptr<Stream> stream_;
  Buffer values_;
  Buffer sums_;   // empty unless the sums are exact
  Buffer facts_;  // the grid's slice end and exponent, and the largest value
};

// Null for an algorithm that needs shared memory if the ranks have none.
std::unique_ptr<Communicator> make_if_possible(World& world, AllReduceAlgorithm algorithm) {
  try {
    return make_mpi_communicator(world, {.algorithm = algorithm});
  } catch (const Error& error) {
    if (error.source() != ErrorSource::usage) throw;
    return nullptr;
  }
}

// The all-reduce that a run would use, after those that it chooses among.
std::vector<Contender> contenders_of(World& world, const Invocation& invocation, const ChosenProcessor& processor) {
  std::shared_ptr<Communicator> own;
  run_or_throw_on_all(world, [&] { own = choose_communicator(world, invocation.run, processor, false); });
  std::vector<Contender> contenders;
  if (!processor.is_gpu()) {
    for (const auto& [algorithm, meaning] : kRingAlgorithms) {
      if (auto communicator = make_if_possible(world, algorithm)) {
        contenders.push_back({std::string(name_of(algorithm)), std::move(communicator), meaning});
      }
    }
    contenders.push_back({"mpi", make_mpi_library_communicator(world), "the MPI library's MPI_Iallreduce"});
    contenders.push_back({"blocking", make_mpi_library_communicator(world, true), "the MPI library's MPI_Allreduce"});
  }
  const bool is_nccl = processor.is_gpu() && invocation.run.processor.comm != Comm::mpi;
  contenders.push_back({is_nccl ? "nccl" : "auto", own, is_nccl ? "NCCL's" : "the fastest for each size, as measured"});
  contenders.push_back({"exact", own, "as auto, with 32-bit integers: as --exchange exact", true});
  return contenders;
}

struct Message {
  std::int64_t elements = 0;
  std::int64_t rounds = 0;
  double max_seconds = 0;
  int hosts = 1;  // of the ranks
};

// Measures and prints one message size. Rank 0 adds the results.
void measure(World& world, Backend& backend, const std::vector<Contender>& contenders, const Message& message,
             Json& results) {
  const std::int64_t bytes = message.elements * 4;
  std::vector<std::unique_ptr<Sums>> sums;
  std::vector<SumTrial> trials;
  std::vector<double> wrong;
  for (const Contender& contender : contenders) {
    Sums& own = *sums.emplace_back(std::make_unique<Sums>(backend, contender, message.elements));
    wrong.push_back(static_cast<double>(own.count_wrong()));
    trials.push_back({.once = [&own] { own.once(); }, .align = [&own] { own.align(); }});
  }
  wrong = max_over_ranks(world, wrong);
  const auto seconds = time_in_rounds(world, trials, message.rounds, message.max_seconds);
  const int ranks = world.size();
  for (std::size_t i = 0; world.rank() == 0 && i < trials.size(); ++i) {
    const std::string& algorithm = contenders[i].algorithm;
    const Quartiles time = quartiles_of(seconds[i]);
    const double rate = static_cast<double>(bytes) / time.median / 1e9;
    // Counts the bytes that each rank must send at least, so that rank counts can be compared.
    const double bus_rate = 2.0 * (ranks - 1) / ranks * rate;
    const auto wrong_elements = static_cast<std::int64_t>(wrong[i]);
    fmt::print("{:>5} {:>12} {:>10} {:>5} {:>9} {:>11.1f} {:>11.1f} {:>11.1f} {:>9.3f} {:>9.3f} {:>7}\n", ranks, bytes,
               message.elements, "f32", algorithm, time.median * 1e6, time.low * 1e6, time.high * 1e6, rate, bus_rate,
               wrong_elements);
    results.push_back({{"ranks", ranks},
                       {"hosts", message.hosts},
                       {"bytes", bytes},
                       {"algorithm", algorithm},
                       {"seconds_median", time.median},
                       {"seconds_low_quartile", time.low},
                       {"seconds_high_quartile", time.high},
                       {"rounds", seconds[i].size()},
                       {"gigabytes_per_second", rate},
                       {"bus_gigabytes_per_second", bus_rate},
                       {"wrong", wrong_elements}});
  }
  std::fflush(stdout);
}

void add_choices(const Communicator& communicator, Json& choices) {
  const auto thresholds = communicator.thresholds();
  for (const AllReduceThreshold& threshold : thresholds) {
    const bool is_last = &threshold == &thresholds.back();
    choices.push_back({{"ranks", communicator.size()},
                       {"up_to_bytes", is_last ? Json() : Json(threshold.up_to_bytes)},
                       {"algorithm", name_of(threshold.algorithm)}});
  }
}

void bench_ranks(World& world, const Invocation& invocation, const ChosenProcessor& processor, Json& json) {
  const AllreduceBench& bench = invocation.allreduce;
  const int hosts = RankOrder(world).nodes();
  const std::vector<Contender> contenders = contenders_of(world, invocation, processor);
  const Communicator& own = *contenders.back().communicator;
  if (world.rank() == 0)
    fmt::print("{} on {}: {}\n", plural(world.size(), "rank"), plural(hosts, "host"), own.description());
  for (const Contender& contender : contenders) {
    if (world.rank() == 0) fmt::print("  by {:<9} {}\n", contender.algorithm, contender.meaning);
  }
  add_choices(own, json["choices"]);
  const OtherLoad load(world);
  for (std::int64_t bytes = bench.min_bytes; bytes <= bench.max_bytes; bytes *= 4) {
    measure(world, *processor.backend, contenders,
            {.elements = std::max<std::int64_t>(1, bytes / 4),
             .rounds = bench.repeats,
             .max_seconds = bench.max_seconds,
             .hosts = hosts},
            json["results"]);
    write_json(world, invocation.json, json);  // each size, since a later one may not end
  }
  const std::string warning = busy_warning(load.hosts());
  if (!warning.empty() && world.rank() == 0) Log(0, world.host(), false).warn(warning);
  json["busy"].push_back(warning.empty() ? Json() : Json(warning));
}

}  // namespace

ExitStatus bench_allreduce(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  std::vector<int> counts;
  run_or_throw_on_all(world, [&] {
    if (!started_by_launcher()) {
      throw Error(ErrorSource::usage,
                  fmt::format("bench allreduce needs a launcher: mpirun -np 4 {} bench allreduce", program_call()));
    }
    counts = parse_counts("ranks", invocation.ranks, world.size());
  });
  const ProcessorOptions& options = invocation.run.processor;
  const ChosenProcessor processor =
      choose_processor(world, gpu_facts(options.device), options, Log(world.rank(), world.host(), true));
  const std::string libraries =
      fmt::format("tutti {}; {}; {}", version(), processor.backend->description(), world.description());
  if (world.rank() == 0) {
    fmt::print("{}\n", libraries);
    fmt::print("{:>5} {:>12} {:>10} {:>5} {:>9} {:>11} {:>11} {:>11} {:>9} {:>9} {:>7}\n", "ranks", "bytes", "count",
               "type", "by", "median us", "25 % us", "75 % us", "alg GB/s", "bus GB/s", "#wrong");
  }
  Json json{{"bench", "allreduce"}, {"libraries", libraries}, {"results", Json::array()}, {"choices", Json::array()}};
  for (const int count : counts) {
    if (count == 1 && counts.size() > 1) continue;
    on_ranks(world, world.rank() < count, [&](World& working) {
      run_then_barrier(working, [&] { bench_ranks(working, invocation, processor, json); });
    });
  }
  write_json(world, invocation.json, json);
  return ExitStatus::done;
}

}  // namespace tutti
