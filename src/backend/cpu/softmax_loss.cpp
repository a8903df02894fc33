#include "tutti/base/error.hpp"
#include "tutti/base/portable_math.hpp"

#include "backend/cpu/layers.hpp"
#include "backend/cpu/staged.hpp"
#include "backend/requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

namespace tutti::cpu {
namespace {

// log(sum of exp(logits)), relative to the largest logit to avoid overflow.
struct LogSumExp {
  double max_logit;
  double sum;  // of exp(logit - max_logit)
  double log_sum;

  explicit LogSumExp(std::span<const float> logits) : max_logit(*std::ranges::max_element(logits)), sum(0) {
    for (const float logit : logits) sum += portable_exp(logit - max_logit);
    log_sum = portable_log(sum);
  }
  double loss(float logit) const { return log_sum + max_logit - logit; }
  double probability(float logit) const { return portable_exp(logit - max_logit) / sum; }
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
  SoftmaxLoss(const ActivationSpec& logits, const LossOptions& options)
      : samples_(static_cast<std::size_t>(logits.shape[0])),
        classes_(static_cast<std::size_t>(logits.shape[1])),
        smoothing_(options.smoothing),
        weights_(options.class_weights.empty() ? std::vector<double>(classes_, 1.0) : options.class_weights),
        all_weights_(std::accumulate(weights_.begin(), weights_.end(), 0.0)),
        is_weighted_(!options.class_weights.empty()),
        logits_(layout_of(logits), plain(logits.shape)),
        gradient_(layout_of(logits), plain(logits.shape)) {}

  void run(Stream& stream, const LossPass& pass) override {
    CpuStream& ours = cpu_stream(stream);
    require_loss_sums(pass);
    logits_.load(ours, pass.logits);
    if (pass.logits_gradient != nullptr) gradient_.bind(pass.logits_gradient);
    add_to(host_i64(pass.sums), sums_of(pass));
    if (pass.logits_gradient != nullptr) gradient_.deliver(ours);
  }

 private:
  std::size_t label_of(const Tensor& labels, std::size_t sample) const {
    const std::int32_t label = static_cast<const std::int32_t*>(labels.data)[sample];
    if (label >= 0 && static_cast<std::size_t>(label) < classes_) return static_cast<std::size_t>(label);
    throw Error(ErrorSource::input, fmt::format("sample {} of a batch has the label {}, but the model has classes 0 to "
                                                "{}; give the model as many classes as the data",
                                                sample, label, classes_ - 1));
  }

  LossSums sums_of(const LossPass& pass) const {
    const auto* const shares = static_cast<const float*>(pass.labels.shares.data);
    const float* const logits = static_cast<const float*>(logits_.address());
    float* const gradients = static_cast<float*>(gradient_.address());
    const double share_of_all = smoothing_ / static_cast<double>(classes_);  // of the target distribution
    LossSums sums;
    double loss = 0;
    for (std::size_t sample = 0; sample < samples_; ++sample) {
      const std::span<const float> row(logits + sample * classes_, classes_);
      const std::size_t label = label_of(pass.labels, sample);
      const double share = shares == nullptr ? 1 : shares[sample];
      const std::size_t other = share < 1 ? label_of(pass.labels.others, sample) : label;
      const LogSumExp softmax(row);
      double own = weights_[label] * softmax.loss(row[label]);
      if (share < 1) own = share * own + (1 - share) * weights_[other] * softmax.loss(row[other]);
      if (smoothing_ == 0) {
        loss += own;  // the other logits may be infinite
      } else {
        double all = 0;
        for (std::size_t i = 0; i < classes_; ++i) all += weights_[i] * softmax.loss(row[i]);
        loss += (1 - smoothing_) * own + share_of_all * all;
      }
      sums.correct += is_correct(row, label) ? 1 : 0;
      const double weight = share * weights_[label] + (1 - share) * weights_[other];
      const double wanted_of_all = is_weighted_ ? (1 - smoothing_) * weight + share_of_all * all_weights_ : 1;
      for (std::size_t i = 0; pass.logits_gradient != nullptr && i < classes_; ++i) {
        const double of_labels = (i == label ? share : 0) + (i == other ? 1 - share : 0);
        const double wanted = weights_[i] * ((1 - smoothing_) * of_labels + share_of_all);
        gradients[sample * classes_ + i] =
            static_cast<float>((softmax.probability(row[i]) * wanted_of_all - wanted) * *pass.gradient_scale);
      }
    }
    sums.samples = static_cast<std::int64_t>(samples_);
    sums.add_loss(loss);
    return sums;
  }

  std::size_t samples_;
  std::size_t classes_;
  double smoothing_;
  std::vector<double> weights_;  // of the classes
  double all_weights_;           // their sum
  bool is_weighted_;
  Staged logits_;
  Staged gradient_;
};

}  // namespace

std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits, const LossOptions& options) {
  require_loss(logits.shape, options);
  return std::make_unique<SoftmaxLoss>(logits, options);
}

}  // namespace tutti::cpu
