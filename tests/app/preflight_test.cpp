#include "tutti/base/error.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/nn/model_file.hpp"

#include "findings.hpp"
#include "preflight/host.hpp"
#include "preflight/memory.hpp"
#include "preflight/options.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace tutti {
namespace {

using testing::IsEmpty;

// The only finding, with its severity.
std::string only(const Findings& findings) {
  EXPECT_EQ(findings.all().size(), 1U);
  if (findings.all().empty()) return "nothing was found";
  const Finding& found = findings.all().front();
  return (found.severity == Severity::error ? "error: " : "warning: ") + found.text;
}

TEST(Findings, AreSortedAndReportedOnceForAllTheirRanks) {
  Findings findings;
  findings.add({Severity::warning, ErrorSource::usage, "slow: fix it", {1}});
  findings.add({Severity::error, ErrorSource::save, "full: empty it", {3}});
  for (const int rank : {0, 2, 5}) findings.add({Severity::warning, ErrorSource::usage, "slow: fix it", {rank}});
  const Hosts hosts{"n1", "n1", "n1", "n2", "n2", "n2"};
  ASSERT_EQ(findings.all().size(), 2U);
  EXPECT_EQ(line_of(findings.all()[0], hosts), "rank 3 on n2: full: empty it");
  EXPECT_EQ(line_of(findings.all()[1], hosts), "ranks 0-2, 5: slow: fix it");
  EXPECT_EQ(line_of({.text = "slow", .ranks = {0, 1}}, Hosts{"n1", "n2"}), "all ranks: slow");
}

// /proc and /sys of a simulated host.
class FakeHost {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  Machine machine() const { return Machine(folder_.path()); }

 private:
  ScratchFolder folder_;
};

TEST(Machine, ReportsTheLimitsOfAllParentControlGroups) {
  FakeHost host;
  host.write("/proc/meminfo", "MemTotal:  1000 kB\nMemAvailable:    500 kB\n");
  host.write("/proc/self/cgroup", "0::/slurm/job_1/step_0\n");
  EXPECT_EQ(host.machine().memory_available(), 500 * 1024);
  EXPECT_FALSE(host.machine().group_limits().cores);
  EXPECT_THAT(host.machine().group_limits().memory, IsEmpty());
  const std::string job = "/sys/fs/cgroup/slurm/job_1";
  host.write(job + "/cpu.max", "150000 100000\n");
  host.write(job + "/step_0/cpu.max", "max 100000\n");
  host.write(job + "/memory.max", "1000000\n");
  host.write(job + "/memory.current", "700000\n");
  host.write(job + "/memory.stat", "anon 5\ninactive_file 200000\n");
  host.write("/sys/fs/cgroup/slurm/memory.max", "max\n");
  EXPECT_EQ(host.machine().group_limits().cores, 1.5);
  host.write("/sys/fs/cgroup/slurm/job_1/step_0/memory.max", "600000\n");
  const std::vector<MemoryPool> pools = host.machine().group_limits().memory;
  ASSERT_EQ(pools.size(), 2U);
  EXPECT_EQ(pools[0].left, 600000);
  EXPECT_EQ(pools[1].left, 500000);
  EXPECT_NE(pools[0].name, pools[1].name);
}

TEST(Machine, ReadsControlGroupsOfVersionOne) {
  FakeHost host;
  host.write("/proc/self/cgroup", "4:memory:/docker/a\n2:cpu,cpuacct:/docker/a\n");
  host.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_THAT(host.machine().group_limits().memory, IsEmpty());
  host.write("/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "4096000\n");
  host.write("/sys/fs/cgroup/memory/docker/a/memory.usage_in_bytes", "96000\n");
  host.write("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "50000\n");
  host.write("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "100000\n");
  ASSERT_EQ(host.machine().group_limits().memory.size(), 1U);
  EXPECT_EQ(host.machine().group_limits().memory[0].left, 4000000);
  EXPECT_EQ(host.machine().group_limits().cores, 0.5);
}

TEST(Machine, SeesCardsAndDriversAndFastNetworks) {
  FakeHost host;
  EXPECT_FALSE(host.machine().has_nvidia_card());
  EXPECT_FALSE(host.machine().has_nvidia_driver());
  EXPECT_FALSE(host.machine().has_fast_network());
  host.write("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  host.write("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  host.write("/proc/driver/nvidia/version", "NVRM\n");
  host.write("/sys/class/infiniband/mlx5_0/node_type", "1\n");
  EXPECT_TRUE(host.machine().has_nvidia_card());
  EXPECT_TRUE(host.machine().has_nvidia_driver());
  EXPECT_TRUE(host.machine().has_fast_network());
}

TEST(Preflight, NamesGpusThatCannotBeUsedAndWhatWouldHelp) {
  const std::string note = "computing on CPUs: rank 0 on a has no GPU: no driver";
  GpuFacts facts{.has_card = true};
  facts.inventory.driver_version = "no driver";
  EXPECT_THAT(only(check_gpus(facts, note)), mentions("warning: ", "no driver for it: install"));
  facts.has_driver = true;
  facts.inventory.driver_version = "12.2";
  facts.inventory.runtime_version = "13.0";
  EXPECT_THAT(only(check_gpus(facts, note)), mentions("supports CUDA 12.2", "needs 13.0", "update the driver"));
  facts.device = Device::cuda;
  EXPECT_THAT(only(check_gpus(facts, note)), mentions("error: ", "supports CUDA 12.2"));
  facts.device = Device::cpu;
  EXPECT_THAT(check_gpus(facts, note).all(), IsEmpty());
  facts = {};
  facts.inventory.devices.resize(2);
  EXPECT_THAT(only(check_gpus(facts, "computing on CPUs: 3 ranks on a see the same 2 GPUs")),
              mentions("the same 2 GPUs", "start as many ranks as GPUs"));
  EXPECT_THAT(check_gpus({}, "this build has no libtutti_cuda.so").all(), IsEmpty());
}

TEST(Gpus, AreMissingIfTheLauncherAnnouncedMoreOrCudaFailsOnAHostThatHasThem) {
  EXPECT_FALSE(misses_gpus({}));
  GpuFacts facts{.has_card = true, .has_driver = true};
  EXPECT_FALSE(misses_gpus(facts)) << "the launcher hides them from this job";
  facts.inventory.failed = true;
  EXPECT_TRUE(misses_gpus(facts));
  facts.has_driver = false;
  EXPECT_TRUE(misses_gpus(facts));
  facts.has_card = false;
  EXPECT_FALSE(misses_gpus(facts)) << "a host with libcuda.so alone";
  facts.announced = 1;
  EXPECT_TRUE(misses_gpus(facts));
  facts.inventory.devices.resize(1);
  facts.inventory.failed = false;
  EXPECT_FALSE(misses_gpus(facts));
}

TEST(Gpus, AreCountedInCudaVisibleDevices) {
  for (const auto& [value, count] : {std::pair("", 0U), std::pair("-1", 0U), std::pair("NoDevFiles", 0U),
                                     std::pair("0,1, 2", 3U), std::pair("0,-1,2", 1U), std::pair("GPU-a,MIG-b", 2U)}) {
    EXPECT_EQ(devices_named_in(value), count) << value;
  }
}

TEST(Preflight, WarnsOfARankOnCoresFarFromItsGpu) {
  FakeHost host;
  const CudaDevice gpu{.name = "NVIDIA H200", .uuid = "GPU-a", .pci_bus_id = "0000:17:00.0"};
  const auto found = [&] { return check_affinity(host.machine(), gpu); };
  EXPECT_THAT(found().all(), IsEmpty()) << "nothing is known";
  const std::string node = "/sys/bus/pci/devices/0000:17:00.0/numa_node";
  host.write(node, "1\n");
  host.write("/sys/devices/system/node/node1/cpulist", "8-15,24-31\n");
  host.write("/proc/self/status", "Name:\ttrainer\nCpus_allowed:\t000f\nCpus_allowed_list:\t0-3,16\n");
  EXPECT_THAT(only(found()), mentions("warning: ", "the cores 0-3,16,", "NVIDIA H200, 0000:17:00.0",
                                      "NUMA node 1 with the cores 8-15,24-31,"));
  host.write("/proc/self/status", "Cpus_allowed_list:\t0-8\n");
  EXPECT_THAT(found().all(), IsEmpty());
  host.write("/proc/self/status", "Cpus_allowed_list:\t3\n");
  EXPECT_THAT(found().all(), testing::SizeIs(1));
  host.write(node, "-1\n");
  EXPECT_THAT(found().all(), IsEmpty()) << "one node";
}

TEST(Preflight, NamesMoreThreadsThanCoresAndBindings) {
  HostLoad load{.host = "n1", .ranks = 4, .threads = 1, .busy_threads = 4, .cores = {4, 4, 4}};
  EXPECT_THAT(check_cores(load).all(), IsEmpty());
  load.busy_threads = 8;
  EXPECT_EQ(only(check_cores(load)),
            "warning: n1: 4 ranks compute with 8 threads on 4 of 4 cores: start fewer ranks "
            "there, or give fewer --threads");
  load.cores.present = 16;
  EXPECT_THAT(only(check_cores(load)), mentions("on 4 of 16 cores", "mpirun --bind-to none"));
  load = {.host = "n1", .ranks = 2, .threads = 2, .busy_threads = 4, .cores = {1, 4, 4}};
  EXPECT_THAT(only(check_cores(load)),
              mentions("bound to 1 of the host's 4 cores", "--threads is 2", "--cpus-per-task 2"));
  load = {.host = "n1", .busy_threads = 8, .cores = {8, 8, 8}, .quota = 2.0};
  EXPECT_THAT(only(check_cores(load)), mentions("8 threads", "allows 2.0 cores", "ask for more"));
}

TEST(Preflight, NamesOversubscribedRanksThatDoNotYield) {
  const HostLoad load{.host = "n1", .ranks = 8, .cores = {2, 2, 2}};
  EXPECT_THAT(only(check_waiting(load, "Open MPI 4.1.4", "")), mentions("export OMPI_MCA_mpi_yield_when_idle=1"));
  EXPECT_THAT(check_waiting(load, "Open MPI 4.1.4", "1").all(), IsEmpty());
  EXPECT_THAT(check_waiting(load, "MPICH 4.0.2", "").all(), IsEmpty());
}

TEST(Preflight, NamesLimitsOfTheProcessThatARunWouldExceed) {
  const LimitedNeeds needs{.memory_bytes = 3 << 20, .file_bytes = 2 << 20};
  EXPECT_THAT(check_limits({}, needs).all(), IsEmpty());
  EXPECT_THAT(only(check_limits({.address_space = 1 << 20}, needs)),
              mentions("error: ", "3 MiB", "limit is 1 MiB (ulimit -v)"));
  EXPECT_THAT(only(check_limits({.file_size = 1 << 20}, needs)), mentions("limited to 1.0 MiB (ulimit -f)"));
  EXPECT_THAT(only(check_open_files({.open_files = 64}, 2)), mentions("warning: only 64 files ", "(ulimit -n)"));
  EXPECT_THAT(check_limits({.locked_memory = 65536}, needs).all(), IsEmpty());
  EXPECT_THAT(only(check_limits({.locked_memory = 65536}, {.on_gpu = true})), mentions("ulimit -l unlimited"));
  EXPECT_THAT(only(check_limits({.address_space = 1 << 20}, {.on_gpu = true})), mentions("ulimit -v unlimited"));
}

TEST(Preflight, NamesClocksThatContradictEachOther) {
  const Hosts hosts{"n1", "n1", "n2", "n3"};
  EXPECT_THAT(check_clocks(hosts, {0, 0, 0.9, -1}).all(), IsEmpty());
  EXPECT_EQ(only(check_clocks(hosts, {0, 0, 3, 0})),
            "warning: the clock of n2 is 3.0 s ahead of that of n1: synchronize both (chrony, ntp), or their logs "
            "show another order of events");
  EXPECT_THAT(only(check_clocks(hosts, {0, 0, 0, -4})), mentions("n3 is 4.0 s behind"));
}

TEST(Preflight, NamesPartsThatAreEmptyOrTooSmall) {
  RunConfig config;
  config.trainer.batch_size = 64;
  config.trainer.num_parts = 8;
  EXPECT_THAT(check_parts(config, false, 640).all(), IsEmpty());
  EXPECT_THAT(only(check_parts(config, true, 640)), mentions("each part of 8 samples", "--batch-norm global"));
  config.trainer.batch_size = 5;
  EXPECT_THAT(only(check_parts(config, true, 640)), mentions("a batch of 5 samples leaves 3 of 8 parts empty"));
  config.trainer.batch_size = 15;
  EXPECT_THAT(check_parts(config, false, 640).all(), IsEmpty());
  config.recipe.augment = parse_augment("flip,cutmix:1");
  EXPECT_THAT(only(check_parts(config, false, 640)), mentions("--batch-size 15 a part has only one", "fewer --parts"));
}

TEST(Preflight, WarnsOfBiasesThatABatchNormSubtracts) {
  NetworkSpec spec = built_in_model("resnet18");
  const auto biased = [&](std::string_view name) {
    const auto layer = std::ranges::find(spec.layers, name, &LayerNode::name);
    std::get<Conv2dSpec>(layer->spec).bias = true;
    return check_biases(Network(spec, Shape{1, 28, 28}, 10));
  };
  EXPECT_THAT(biased("stage2.block1.shortcut").all(), IsEmpty());  // the batch norm adds it and does not normalize it
  EXPECT_EQ(
      only(biased("stem.conv")),
      "warning: the batch norm after it subtracts the bias of stem.conv: give bias = false in network 'resnet18'");
  EXPECT_THAT(only(biased("stage1.block1.conv1")), mentions("stem.conv and 1 more"));
}

TEST(Preflight, WarnsOfALastBatchThatIsTooSmallForBatchNorm) {
  RunConfig config;
  config.trainer.batch_size = 256;
  config.trainer.num_parts = 8;
  for (const std::int64_t samples : {2560, 2560 + 32}) {
    EXPECT_THAT(check_parts(config, true, samples).all(), IsEmpty()) << samples;
  }
  EXPECT_THAT(check_parts(config, false, 2560 + 31).all(), IsEmpty());
  EXPECT_THAT(only(check_parts(config, true, 2560 + 31)), mentions("31 samples in 8 parts", "--last-batch discard"));
  config.trainer.last_batch = LastBatch::discard;
  EXPECT_THAT(check_parts(config, true, 2560 + 31).all(), IsEmpty());
}

TEST(Preflight, WarnsOfLearningRatesOfZeroAndOfSchedulesWithoutEffect) {
  RunConfig config;
  EXPECT_THAT(check_rates(config, 40, 40).all(), IsEmpty());
  config.trainer.schedule_epochs = 3;
  EXPECT_THAT(only(check_rates(config, 40, 24)),
              mentions("--schedule-epochs 3 ", "--schedule constant", "--schedule cosine"));
  config.trainer.learning_rate.schedule = Schedule::cosine;
  EXPECT_THAT(check_rates(config, 24, 24).all(), IsEmpty());
  EXPECT_THAT(only(check_rates(config, 40, 24)),
              mentions("ends at epoch 3", "--epochs is 5", "give --schedule-epochs 5"));
  config.trainer.learning_rate.min = 1e-4;
  EXPECT_THAT(check_rates(config, 40, 24).all(), IsEmpty());
  config.trainer.learning_rate.base = 0;
  EXPECT_THAT(only(check_rates(config, 40, 24)), mentions("--lr 0: ", "give a learning rate above 0"));
  config = RunConfig();
  config.trainer.learning_rate.min = 1e-4;
  EXPECT_THAT(only(check_rates(config, 40, 40)), mentions("--min-lr 0.0001 ", "--schedule constant"));
  config = RunConfig();
  config.texts.lr_period = "10";
  EXPECT_THAT(only(check_rates(config, 40, 40)), mentions("--lr-period 10 ", "--schedule constant", "--schedule step"));
}

TEST(Preflight, WarnsOfClassesWithoutTrainingSamples) {
  DatasetInfo info{.name = "birds", .image = Shape{1, 2, 2}, .classes = 3, .samples = 9, .class_samples = {4, 5, 3}};
  EXPECT_THAT(check_classes(info).all(), IsEmpty());
  info.class_samples = {4, 0, 5};
  info.class_names = {"emu", "kiwi", "owl"};
  EXPECT_EQ(only(check_classes(info)),
            "warning: 1 of 3 classes has no training samples in birds: 1 ('kiwi'); the network cannot learn it");
  info.labelled = false;
  EXPECT_THAT(check_classes(info).all(), IsEmpty());
}

TEST(Preflight, WarnsOfClassesWithoutTestSamplesAndOfTheBestOfNone) {
  RunConfig config;
  const OwnedData owned = open_data({.train = "synthetic:200x1x4x4:3"});
  const std::vector<std::string> names{"cat", "dog", "eel"};
  EXPECT_THAT(check_tests(config, names, owned.pair.test.get()).all(), IsEmpty());
  EXPECT_THAT(check_tests(config, names, nullptr).all(), IsEmpty());
  const std::vector<std::string> more{"cat", "dog", "eel", "fox", "gnu"};
  EXPECT_THAT(only(check_tests(config, more, owned.pair.test.get())),
              mentions("warning", "'fox' (and 1 more)", "--validation-ratio"));
  config.trainer.checkpoint_at_best = true;
  EXPECT_THAT(only(check_tests(config, names, nullptr)), mentions("warning", "--keep-best", "--validation-ratio"));
}

TEST(Preflight, WarnsOfImagesOfADataFileThatAreEnlargedOrCroppedOnceMore) {
  DatasetInfo info{.name = "photos", .image = {3, 96, 96}, .has_short_side = true};
  EXPECT_THAT(check_image_size(info, {3, 64, 64}).all(), IsEmpty());
  EXPECT_EQ(only(check_image_size(info, {3, 224, 224})),
            "warning: --image-size 224 enlarges the images of photos, which are 96 x 96: convert the pictures again "
            "with --image-size 224 or more, or train at 96");
  info.has_short_side = false;
  EXPECT_THAT(check_image_size(info, {3, 96, 96}).all(), IsEmpty());
  EXPECT_THAT(only(check_image_size(info, {3, 64, 64})), mentions("--image-size 64 crops them once more"));
}

TEST(Preflight, NamesTooLittleMemoryOfHostGroupAndGpu) {
  const std::int64_t mib = 1 << 20;
  AvailableMemory memory{.host = "n1", .of_host = {"host", 2000 * mib, 4, 1000 * mib}};
  EXPECT_THAT(check_memory(memory).all(), IsEmpty());
  memory.of_host.left = 900 * mib;
  EXPECT_EQ(only(check_memory(memory)),
            "warning: n1: 4 ranks need about 1000 MiB, and the host has 900 MiB: start fewer "
            "ranks there, or give a smaller --batch-size");
  memory.of_host.left = 700 * mib;
  EXPECT_THAT(only(check_memory(memory)), mentions("error: n1: 4 ranks ", "1000 MiB"));
  EXPECT_EQ(check_memory(memory).all()[0].source, ErrorSource::input);
  memory.of_host = {};
  memory.of_groups = {{"0:1", 200 * mib, 1, 250 * mib}, {"0:2", 300 * mib, 4, 1000 * mib}};
  EXPECT_THAT(only(check_memory(memory)),
              mentions("4 ranks ", "1000 MiB", "control group leaves them 300 MiB", "ask for more"));
  memory.of_groups.clear();
  memory.device_bytes = 300 * mib;
  memory.device_free = 100 * mib;
  EXPECT_THAT(only(check_memory(memory)), mentions("300 MiB are needed on the GPU", "100 MiB are free"));
}

struct Estimated {
  const char* model;
  const char* data;
  std::int64_t batch;
  int parts;
  Exchange exchange;
};

TEST(MemoryEstimate, IsWithinAQuarterOfTheMemoryOfATrainer) {
  const auto backend = make_cpu_backend();
  const auto communicator = make_solo_communicator();
  const char* const small = "synthetic:300x1x28x28:10";
  const char* const color = "synthetic:300x3x32x32:10";
  for (const Estimated& run : {Estimated{"lenet", small, 16, 1, Exchange::ring},
                               {"lenet", small, 256, 1, Exchange::ring},
                               {"lenet", small, 240, 4, Exchange::exact},
                               {"resnet18", color, 8, 1, Exchange::ring},
                               {"resnet18", color, 128, 4, Exchange::ring},
                               {"resnet18", small, 32, 2, Exchange::exact},
                               {"vgg11", color, 8, 1, Exchange::ring},
                               {"vgg11", color, 64, 2, Exchange::exact}}) {
    SCOPED_TRACE(testing::Message() << run.model << ", batch " << run.batch << ", parts " << run.parts);
    const OwnedData data = open_data({.train = run.data});
    const Network network(built_in_model(run.model), data.pair.train->info().image, 10);
    TrainerOptions options{.batch_size = run.batch, .num_parts = run.parts};
    options.exchange.kind = run.exchange;
    options.recipe.image = data.pair.train->info().image;
    options.optimizer.momentum = 0.9;
    options.max_workers = 2;
    const Trainer trainer({.backend = *backend,
                           .communicator = *communicator,
                           .network = network,
                           .train = *data.pair.train,
                           .test = data.pair.test.get()},
                          options, {.configuration = "c", .model = "m", .versions = "v"});
    const auto estimate = estimate_memory(
        {.network = network, .options = options, .test_samples = data.pair.test ? data.pair.test->info().samples : 0},
        {.shard = FileShard{.file = 1, .files = 4}});
    EXPECT_EQ(estimate.file, estimate.checkpoint / 4);
    EXPECT_GT(estimate.activations, 0);
    EXPECT_GE(estimate.network - estimate.activations, std::int64_t{2} * 4 * network.layout().parameters());
    EXPECT_GE(estimate.copies, estimate.batches);
    const double ratio = static_cast<double>(estimate.network) / static_cast<double>(trainer.memory_bytes());
    EXPECT_GT(ratio, 0.8);
    EXPECT_LT(ratio, 1.25);
  }
}

TEST(MemoryEstimate, CoversTheMostPartsThatARankCanHave) {
  const Network network(built_in_model("lenet"), {1, 28, 28}, 10);
  TrainerOptions options{.batch_size = 60, .num_parts = 6};
  options.exchange.kind = Exchange::exact;
  options.max_workers = 8;
  const auto estimate_with = [&](const PartMapOptions& map) {
    options.part_map = map;
    return estimate_memory({.network = network, .options = options, .rank = 1, .ranks = 3});
  };
  const MemoryEstimate even = estimate_with({});
  const MemoryEstimate balanced = estimate_with({.balanced = true});
  EXPECT_EQ(balanced.network, estimate_with({.parts_by_rank = {1, 4, 1}}).network);
  EXPECT_GT(balanced.network, even.network);
  EXPECT_EQ(balanced.batches, even.batches);
}

}  // namespace
}  // namespace tutti
