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

// Whether the label's logit is the largest, or the first of equal ones. A label whose logit is NaN is never correct.
bool is_correct(std::span<const float> logits, std::size_t label) {
  const float own = logits[label];
  const auto before = logits.first(label);
  const auto after = logits.subspan(label + 1);
  return !std::isnan(own) && std::ranges::none_of(before, [own](float other) { return other >= own; }) &&
         std::ranges::none_of(after, [own](float other) { return other > own; });
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
    const float* const logits = static_cast<const float*>(logits_.address());
    float* const gradients = static_cast<float*>(gradient_.address());
    const double share_of_all = smoothing_ / static_cast<double>(classes_);  // of the target distribution
    LossSums sums;
    double loss = 0;
    for (std::size_t sample = 0; sample < samples_; ++sample) {
      const std::span<const float> row(logits + sample * classes_, classes_);
      const std::size_t label = label_of(pass, sample);
      const LogSumExp softmax(row);
      const double own = softmax.loss(row[label]);
      if (smoothing_ == 0) {
        loss += own;  // the other logits may be infinite
      } else {
        double all = 0;
        for (const float logit : row) all += softmax.loss(logit);
        loss += (1 - smoothing_) * own + share_of_all * all;
      }
      sums.correct += is_correct(row, label) ? 1 : 0;
      for (std::size_t i = 0; pass.logits_gradient != nullptr && i < classes_; ++i) {
        const double wanted = (i == label ? 1 - smoothing_ : 0) + share_of_all;
        gradients[sample * classes_ + i] =
            static_cast<float>((softmax.probability(row[i]) - wanted) * pass.gradient_scale);
      }
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
