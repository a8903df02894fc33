#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"

#include "bench/bench.hpp"
#include "commands.hpp"
#include "output.hpp"
#include "plan_choices.hpp"
#include "processors.hpp"
#include "step_by_hand.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <sstream>

namespace tutti {
namespace {

// Three adjacent weights of the first filter or unit, in the first layer with weights, from the middle of its input.
struct Excerpt {
  static constexpr std::int64_t kMaxValues = 3;
  ParameterSlice slice;
  std::int64_t first = 0;
  std::int64_t count = 0;

  explicit Excerpt(const Network& network) {
    for (const NetworkLayer& layer : network.layers()) {
      if (layer.parameters.empty()) continue;
      slice = network.layout().slice(layer.parameters.front());
      const std::int64_t row = slice.shape.ndim() > 0 ? slice.elements() / slice.shape[0] : 0;
      const bool is_unit_on_image = slice.shape.ndim() == 2 && layer.input.ndim() == 3;
      if (is_unit_on_image)
        first = std::max<std::int64_t>(0, (layer.input[1] / 2) * layer.input[2] + layer.input[2] / 2 - 1);
      count = std::min(kMaxValues, row - first);
      return;
    }
    throw Error(ErrorSource::input,
                fmt::format("the network {} has no layer with weights: give another --model", network.spec().name));
  }
  std::vector<double> values_in(StepByHand& step, const Tensor& block) const {
    const auto values = read_slices(step.backend, *step.stream, block, std::span(&slice, 1)).front();
    return {values.begin() + first, values.begin() + first + count};
  }
};

// Other ranks share a line: "  .. ranks 3 to 14".
constexpr int kMaxRanks = 8;
bool has_own_line(int rank, int ranks) { return ranks <= kMaxRanks || rank < kMaxRanks - 1 || rank == ranks - 1; }

// One part per rank, unless --parts is given.
RunConfig config_for(const World& world, RunConfig config) {
  if (config.trainer.num_parts == 0) config.trainer.num_parts = world.size();
  config.exchange = Exchange::ring;
  config.trainer.test_every_epochs = 0;
  return config;
}

class Tour {
 public:
  Tour(World& world, const Invocation& invocation, RankStatus& rank_status, StallWatch* watch)
      : world_(world),
        run_(world, config_for(world, invocation.run), &rank_status),
        abort_on_exit_(watch, *run_.assembly.communicator) {
    run_or_throw_on_all(world, [&] { excerpt_.emplace(*run_.assembly.network); });
    build_with_shared_choices(world, run_.assembly.config.processor, *run_.assembly.processor.backend,
                              Log(world.rank(), world.host(), true), [&] {
                                step_.emplace(run_.assembly, *run_.assembly.communicator,
                                              plan_by_hand(run_.assembly, plan().parts_of(world.rank())));
                              });
  }

  void show_batch();
  void show_weights();
  void show_forward();
  void show_gradients();
  void show_sum();
  void show_step();
  // Whether all values were equal that must be.
  bool all_equal() const { return all_equal_; }

  // These print on rank 0. Prose is wrapped, lines are cut.
  void prose(const std::string& text) const;
  void line(const std::string& text) const;

 private:
  PartMap plan() const { return {run_.assembly.config.trainer.num_parts, world_.size()}; }
  bool is_alone() const { return world_.size() == 1; }
  // Prints the excerpt of a block and the digest of the whole block, one line per rank. Returns the digests.
  std::vector<std::string> show_block(const Tensor& block, double scale);
  // Returns a power of 1000 that makes the values readable, the same on all ranks.
  double scale_for(const std::vector<double>& values) const;
  std::string check_equal(const std::vector<std::string>& digests, const char* if_equal);

  static constexpr std::size_t kColumns = 100;
  World& world_;
  PreparedTraining run_;
  AbortCollectivesOnExit abort_on_exit_;
  std::optional<Excerpt> excerpt_;
  std::optional<StepByHand> step_;
  std::vector<double> before_;     // the excerpt's weights
  std::vector<double> gradients_;  // the excerpt's gradients on this rank
  double scale_ = 1;               // of the gradients
  bool all_equal_ = true;
};

void Tour::line(const std::string& text) const {
  if (world_.rank() != 0) return;
  const std::string kept = text.substr(0, kColumns);
  fmt::print("{}\n", kept.substr(0, kept.find_last_not_of(' ') + 1));
}

void Tour::prose(const std::string& text) const {
  std::istringstream words(text);
  std::string row;
  for (std::string word; words >> word; row += (row.empty() ? "" : " ") + word) {
    if (row.size() + 1 + word.size() > kColumns) line(std::exchange(row, ""));
  }
  line(row);
}

double Tour::scale_for(const std::vector<double>& values) const {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  largest = max_over_ranks(world_, {largest}).front();
  double scale = 1;
  while (largest > 0 && largest * scale < 0.1 && scale < 1e15) scale *= 1000;
  return scale;
}

std::vector<std::string> Tour::show_block(const Tensor& block, double scale) {
  const auto values = all_gather_doubles(world_, excerpt_->values_in(*step_, block));
  const auto digests = all_gather_text(world_, digest_text(step_->digest(block)));
  std::string header = fmt::format("{:<8}", "");
  for (std::int64_t i = 0; i < excerpt_->count; ++i) {
    header += fmt::format(" {:>16}", index_text(excerpt_->slice.shape, excerpt_->first + i));
  }
  line(fmt::format("{}{}:", excerpt_->slice.name, scale == 1 ? "" : fmt::format(" times {:g}", scale)));
  line(header + "   digest of all");
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (!has_own_line(rank, world_.size())) {
      if (rank == kMaxRanks - 1) line(fmt::format("  .. ranks {} to {}", rank, world_.size() - 2));
      continue;
    }
    std::string row = fmt::format("{:<8}", fmt::format("rank {}", rank));
    for (const double value : values[static_cast<std::size_t>(rank)]) row += fmt::format(" {:>16.6f}", value * scale);
    line(fmt::format("{}   {}", row, digests[static_cast<std::size_t>(rank)]));
  }
  return digests;
}

std::string Tour::check_equal(const std::vector<std::string>& digests, const char* if_equal) {
  const std::size_t different = std::set<std::string>(digests.begin(), digests.end()).size();
  all_equal_ = all_equal_ && different == 1;
  if (is_alone())
    return fmt::format("With one rank there is nothing to compare: mpirun -np 4 {} tour shows more.", program_name());
  return fmt::format("{}, {}: {}", plural(digests.size(), "rank"), plural(different, "digest"),
                     different == 1 ? if_equal : "the ranks differ. Please report this.");
}

void Tour::show_batch() {
  const Assembly& assembly = run_.assembly;
  const TrainerOptions& options = assembly.config.trainer;
  const SplitBatchSampler& sampler = step_->loader.sampler();
  const std::int64_t n = sampler.batch_samples(step_->epoch, 0);
  prose(
      fmt::format("The {} images of the training set make {} of {}. Every batch is cut into {}; part p of L has the "
                  "positions floor(n p / L) to floor(n (p + 1) / L) - 1 of its n samples. The first batch:",
                  assembly.data.train->info().samples, plural(sampler.steps(step_->epoch), "step"), n,
                  plural(options.num_parts, "part")));
  line(fmt::format("{:>4}  {:>4}  {:<13} {:>6}  {}", "rank", "part", "positions", "images", "which ones"));
  const auto samplers =
      SplitBatchSampler::for_parts(assembly.data.train->info().samples, options.batch_size, options.num_parts,
                                   {0, options.num_parts}, options.last_batch, plan_by_hand(assembly, {}).order);
  std::set<std::int64_t> different;
  for (int part = 0; part < options.num_parts; ++part) {
    const auto samples = samplers[static_cast<std::size_t>(part)].indices(step_->epoch, 0);
    different.insert(samples.begin(), samples.end());
    if (!has_own_line(part, options.num_parts)) {
      if (part == kMaxRanks - 1) line(fmt::format("      .. parts {} to {}", part, options.num_parts - 2));
      continue;
    }
    const IndexRange positions = part_positions(n, options.num_parts, part);
    const std::span<const std::int64_t> first(samples.data(), std::min<std::size_t>(samples.size(), 8));
    line(fmt::format("{:>4}  {:>4}  {:<13} {:>6}  {}{}", plan().rank_of(part), part,
                     fmt::format("{} to {}", positions.begin, positions.end - 1), samples.size(), fmt::join(first, " "),
                     first.size() < samples.size() ? " .." : ""));
  }
  if (options.shuffle == Shuffle::balanced) {
    prose(fmt::format("{} different images in total: each is drawn for one part, some more than once.",
                      different.size()));
    return;
  }
  all_equal_ = all_equal_ && std::ssize(different) == n;
  prose(fmt::format("{} different images in total: each belongs to one part, and none is left out.", different.size()));
}

void Tour::show_weights() {
  before_ = excerpt_->values_in(*step_, step_->arena.weights());
  prose(
      "Each initial weight depends only on the seed, the name of its tensor and its position. So every rank draws the "
      "same weights by itself, and nothing is sent.");
  const auto digests = show_block(step_->arena.weights(), 1);
  prose(check_equal(digests, "the replicas are equal, to the last bit of the last parameter."));
}

void Tour::show_forward() {
  TrainSums mine;
  run_then_barrier(world_, [&] { mine = step_->compute(step_->loader.next(*step_->stream)); });
  gradients_ = excerpt_->values_in(*step_, step_->arena.gradients());
  const auto samples = static_cast<double>(mine.samples);
  const bool is_weighted = !run_.assembly.config.trainer.class_weights.empty();
  const auto ranks = all_gather_doubles(
      world_, {mine.loss(), static_cast<double>(mine.correct), samples, is_weighted ? mine.weight : samples});
  prose("Each rank computes the forward pass of its parts, and from the outputs the loss (softmax cross-entropy):");
  line(fmt::format("{:>5}  {:>6}  {:>9}  {:>7}", "rank", "images", "mean loss", "correct"));
  std::array<double, 4> all{};
  for (int rank = 0; rank < world_.size(); ++rank) {
    const auto& row = ranks[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += row[i];
    if (has_own_line(rank, world_.size())) {
      line(fmt::format("{:>5}  {:>6}  {:>9.4f}  {:>7}", rank, row[2], row[3] > 0 ? row[0] / row[3] : 0, row[1]));
    }
  }
  line(fmt::format("{:>5}  {:>6}  {:>9.4f}  {:>7}", "all", all[2], all[3] > 0 ? all[0] / all[3] : 0, all[1]));
  const int classes = run_.assembly.network->classes();
  prose(
      fmt::format("A network that gives each of {0} classes the same probability has the loss ln {0} = {1:.4f}. Then "
                  "each rank computes the backward pass of its parts, from the last layer to the first, and adds up "
                  "the gradients of its parts.",
                  classes, std::log(classes)));
}

void Tour::show_gradients() {
  scale_ = scale_for(gradients_);
  prose(
      "The weights are equal and the images are not, so each rank has other gradients. Each loss was divided by the "
      "samples of the whole batch.");
  const auto digests = show_block(step_->arena.gradients(), scale_);
  const std::size_t different = std::set<std::string>(digests.begin(), digests.end()).size();
  prose(fmt::format("{}, {}. {}", plural(world_.size(), "rank"), plural(different, "digest"),
                    is_alone() ? "More ranks would each have the gradients of a share of the batch."
                               : "If each rank made its own update now, the replicas would diverge."));
}

void Tour::show_sum() {
  int buckets = 0;
  run_then_barrier(world_, [&] { buckets = step_->exchange(); });
  const auto before = all_gather_doubles(world_, gradients_);
  prose(
      fmt::format("An all-reduce adds the gradients of the ranks, element by element, and returns the sum to all of "
                  "them: {}. The trainer starts each as soon as the backward pass has the last gradient in it.",
                  plural(buckets, "all-reduce") + " of " + plural(step_->arena.layout().parameters(), "parameter")));
  std::string sum = fmt::format("{:<8}", "by hand");
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    double by_hand = 0;
    for (const auto& rank : before) by_hand += rank[i];
    sum += fmt::format(" {:>16.6f}", by_hand * scale_);
  }
  const auto digests = show_block(step_->arena.gradients(), scale_);
  line(sum + "   the numbers of station 4, added up");
  prose(check_equal(digests, "every rank has the same sum, which is the gradient of the mean loss of the batch."));
}

void Tour::show_step() {
  const double rate = run_.trainer->learning_rate();
  const auto gradients = excerpt_->values_in(*step_, step_->arena.gradients());
  run_then_barrier(world_, [&] { step_->update(rate); });
  const auto after = excerpt_->values_in(*step_, step_->arena.weights());
  prose(
      fmt::format("Every rank updates its own weights: weight - learning rate x gradient (SGD; the momentum of {} has "
                  "no effect in the first step). On rank 0:",
                  step_->options.optimizer.momentum));
  for (std::size_t i = 0; i < after.size(); ++i) {
    line(fmt::format("{:>16} {:>12.8f}   -  {:<10.6g} x {:>12.8f}   =  {:>12.8f}",
                     index_text(excerpt_->slice.shape, excerpt_->first + static_cast<std::int64_t>(i)), before_[i],
                     rate, gradients[i], after[i]));
  }
  const auto digests = show_block(step_->arena.weights(), 1);
  prose(check_equal(digests, "no weight was sent, and the replicas are still equal."));
  std::uint64_t of_trainer = 0;
  run_then_barrier(world_, [&] {
    run_.trainer->step();
    of_trainer = run_.trainer->weights_digest();
  });
  const bool same = world_.all_true(digest_text(of_trainer) == digests[static_cast<std::size_t>(world_.rank())]);
  all_equal_ = all_equal_ && same;
  prose(fmt::format("The trainer's own first step gives the digest {}: {}", digest_text(of_trainer),
                    same ? "the same bits as this step by hand. Training repeats stations 1 to 6; `bench exchange` "
                           "measures the other exchanges."
                         : "other bits than this step. Please report this."));
}

struct Station {
  const char* name;
  const char* title;
  void (Tour::*show)();
  const char* source;
};
constexpr std::array kStations{
    Station{"batch", "a batch is cut into parts", &Tour::show_batch,
            "SplitBatchSampler (include/tutti/data/split_batch_sampler.hpp), PartMap "
            "(include/tutti/data/part_map.hpp)"},
    Station{"weights", "every rank begins with the same weights", &Tour::show_weights,
            "StepByHand (src/app/step_by_hand.hpp), initialize (src/nn/network.cpp), digest "
            "(include/tutti/base/digest.hpp)"},
    Station{"forward", "forward, loss and backward on every rank", &Tour::show_forward,
            "StepByHand::compute (src/app/step_by_hand.hpp), NetworkInstance (include/tutti/nn/network_instance.hpp), "
            "PartWorkers (src/train/part_workers.cpp)"},
    Station{"gradients", "the gradients differ from rank to rank", &Tour::show_gradients,
            "NetworkInstance::backward (src/nn/network_instance.cpp), PartWorkers::add (src/train/part_workers.cpp)"},
    Station{"sum", "an all-reduce makes them equal", &Tour::show_sum,
            "StepByHand::exchange (src/app/step_by_hand.hpp), Communicator (include/tutti/comm/communicator.hpp), "
            "GradientExchange (src/train/exchange.cpp)"},
    Station{"step", "one update, and the replicas are still equal", &Tour::show_step,
            "StepByHand::update (src/app/step_by_hand.hpp), Optimizer (src/train/optimizers.cpp), Replica::step "
            "(src/train/replica.cpp), Trainer (src/train/trainer.cpp)"}};

// The number of stations up to this one, which is given by number or name; empty: all.
std::size_t stations_up_to(const std::string& last) {
  for (std::size_t i = 0; i < kStations.size(); ++i) {
    if (last == kStations[i].name || last == fmt::format("{}", i + 1)) return i + 1;
  }
  if (last.empty()) return kStations.size();
  throw Error(ErrorSource::usage, fmt::format("--to {}: unknown station; give one of 1 to {}, or its name as "
                                              "{} tour --stations lists them",
                                              last, kStations.size(), program_call()));
}

// Waits for a line of input, without causing a stall. Returns false if the line begins with q. After the end of the
// input, does not ask again.
bool wait_for_enter(RankStatus& rank_status, bool& asks) {
  fmt::print("Press Enter to continue, or q and Enter to end.");
  std::fflush(stdout);
  std::string typed;
  for (char key = 0; key != '\n'; typed += key) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    while (::poll(&input, 1, 1000) == 0) rank_status.note_progress();
    asks = ::read(STDIN_FILENO, &key, 1) == 1;
    if (!asks) break;
  }
  fmt::print("\n");
  return !typed.starts_with('q');
}

}  // namespace

ExitStatus tour_command(World& world, const Invocation& invocation, CommandContext& context) {
  std::size_t stations = 0;
  run_or_throw_on_all(world, [&] { stations = stations_up_to(invocation.tour.to); });
  if (invocation.tour.list_only) {
    for (std::size_t i = 0; world.rank() == 0 && i < kStations.size(); ++i) {
      fmt::print("{:>2}  {:<10} {}\n", i + 1, kStations[i].name, kStations[i].title);
    }
    return ExitStatus::done;
  }
  RankStatus rank_status;
  if (context.watch != nullptr) rank_status.publish_in(context.watch->status_slot());
  Tour tour(world, invocation, rank_status, context.watch);
  const bool at_terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  bool asks = invocation.tour.pause && world.rank() == 0 && (started_by_launcher() || at_terminal);
  for (std::size_t i = 0; i < stations; ++i) {
    const Station& station = kStations[i];
    const std::string heading =
        fmt::format("Station {} of {}, {}: {}", i + 1, kStations.size(), station.name, station.title);
    tour.line(heading);
    tour.line(std::string(heading.size(), '-'));
    (tour.*station.show)();
    tour.prose(fmt::format("Source: {}.", station.source));
    const bool is_last = i + 1 == stations;
    bool goes_on = true;
    if (asks && !is_last) {
      goes_on = wait_for_enter(rank_status, asks);
    } else {
      tour.line("");
    }
    if (world.rank() == 0) std::fflush(stdout);
    if (invocation.tour.pause && !world.all_true(goes_on)) break;
  }
  return world.all_true(tour.all_equal()) ? ExitStatus::done : ExitStatus::negative_result;
}

}  // namespace tutti
