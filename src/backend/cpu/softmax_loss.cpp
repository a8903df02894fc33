#include "backend/cpu/layers.hpp"
#include "backend/cpu/library.hpp"
#include "backend/cpu/primitive.hpp"
#include "backend/requests.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace tutti::cpu {
namespace {

// log(sum of exp(logits)), relative to the largest logit to avoid overflow.
struct LogSumExp {
  double greatest;
  double sum;  // of exp(logit - greatest)

  explicit LogSumExp(std::span<const float> logits) : greatest(*std::ranges::max_element(logits)), sum(0) {
    for (const float logit : logits) sum += std::exp(logit - greatest);
  }
  double loss(float logit) const { return std::log(sum) + greatest - logit; }
  double probability(float logit) const { return std::exp(logit - greatest) / sum; }
};

// The target distribution of a sample over the classes.
struct Target {
  std::size_t label;
  double smoothing;

  double share_of_all(std::size_t classes) const { return smoothing / static_cast<double>(classes); }
  double loss(const LogSumExp& softmax, std::span<const float> logits) const {
    const double own = softmax.loss(logits[label]);
    if (smoothing == 0) return own;  // the other logits may be infinite
    double all = 0;
    for (const float logit : logits) all += softmax.loss(logit);
    return (1 - smoothing) * own + share_of_all(logits.size()) * all;
  }
};

// Whether the label's logit is the largest, or the first of equal ones. A label whose logit is NaN is never correct.
bool is_correct(std::span<const float> logits, std::size_t label) {
  const float own = logits[label];
  const auto before = logits.first(label);
  const auto after = logits.subspan(label + 1);
  return !std::isnan(own) && std::ranges::none_of(before, [own](float other) { return other >= own; }) &&
         std::ranges::none_of(after, [own](float other) { return other > own; });
}

void write_gradient(const LogSumExp& softmax, std::span<const float> logits, const Target& target, float scale,
                    float* gradient) {
  const double others = target.share_of_all(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double wanted = (i == target.label ? 1 - target.smoothing : 0) + others;
    gradient[i] = static_cast<float>((softmax.probability(logits[i]) - wanted) * scale);
  }
}

void add_to(std::span<std::int64_t> totals, const LossSums& sums) {
  LossSums::Fields fields;
  std::ranges::copy(totals, fields.begin());
  std::ranges::copy((LossSums::from(fields) + sums).fields(), totals.begin());
}

class SoftmaxLoss final : public LossLayer {
 public:
  SoftmaxLoss(const dnnl::engine& engine, const ActivationSpec& logits, double smoothing)
      : samples_(static_cast<std::size_t>(logits.shape[0])),
        classes_(static_cast<std::size_t>(logits.shape[1])),
        smoothing_(smoothing),
        logits_(engine, desc_of(logits), plain(dims_of(logits.shape)), Staged::Use::read),
        gradient_(engine, desc_of(logits), plain(dims_of(logits.shape)), Staged::Use::written) {}

  void run(Stream& stream, const LossPass& pass) override {
    CpuStream& ours = cpu_stream(stream);
    require_loss_sums(pass);
    logits_.load(ours, pass.logits);
    if (pass.logits_gradient != nullptr) gradient_.bind(pass.logits_gradient);
    add_to(host_i64(pass.sums), sums_of(pass));
    if (pass.logits_gradient != nullptr) gradient_.deliver(ours);
  }

 private:
  std::size_t label_of(const LossPass& pass, std::size_t sample) const {
    const std::int32_t label = pass.labels[sample];
    if (label >= 0 && static_cast<std::size_t>(label) < classes_) return static_cast<std::size_t>(label);
    throw Error(ErrorSource::input, fmt::format("sample {} of a batch has the label {}, but the model has classes 0 to "
                                                "{}; give the model as many classes as the data",
                                                sample, label, classes_ - 1));
  }

  LossSums sums_of(const LossPass& pass) const {
    const float* const logits = static_cast<const float*>(logits_.memory().get_data_handle());
    float* const gradients = static_cast<float*>(gradient_.memory().get_data_handle());
    LossSums sums;
    double loss = 0;
    for (std::size_t sample = 0; sample < samples_; ++sample) {
      const std::span<const float> row(logits + sample * classes_, classes_);
      const Target target{label_of(pass, sample), smoothing_};
      const LogSumExp softmax(row);
      loss += target.loss(softmax, row);
      sums.correct += is_correct(row, target.label) ? 1 : 0;
      if (pass.logits_gradient == nullptr) continue;
      write_gradient(softmax, row, target, pass.gradient_scale, gradients + sample * classes_);
    }
    sums.samples = static_cast<std::int64_t>(samples_);
    sums.add_loss(loss);
    return sums;
  }

  std::size_t samples_;
  std::size_t classes_;
  double smoothing_;
  Staged logits_;
  Staged gradient_;
};

}  // namespace

std::unique_ptr<LossLayer> make_softmax_loss(const dnnl::engine& engine, const ActivationSpec& logits,
                                             double smoothing) {
  require_loss(logits.shape, smoothing);
  return std::make_unique<SoftmaxLoss>(engine, logits, smoothing);
}

}  // namespace tutti::cpu
