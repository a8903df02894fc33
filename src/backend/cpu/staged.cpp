#include "backend/cpu/staged.hpp"

namespace tutti::cpu {
namespace {

template <class To, class From>
void copy_sample(const ChannelLayout& from, const From* values, const ChannelLayout& to, To* results,
                 std::int64_t sample) {
  for (std::int64_t channel = 0; channel < to.channels(); ++channel) {
    To* const result = results + to.index_of(sample, channel, 0);
    const From* const value = values + from.index_of(sample, channel, 0);
    for (std::int64_t pixel = 0; pixel < to.pixels(); ++pixel) {
      set(result[pixel * to.period()], to_float(value[pixel * from.period()]));
    }
  }
}

template <class To, class From>
void convert(CpuStream& stream, const StoredActivation& from, const StoredActivation& to) {
  const ChannelLayout source(from.layout);
  const ChannelLayout target(to.layout);
  const From* const values = static_cast<const From*>(from.values);
  To* const results = static_cast<To*>(to.values);
  const bool same = source.period() == target.period();
  const std::int64_t of_sample = target.elements() / target.samples();
  const auto copy = [&](std::int64_t sample) {
    if (!same) return copy_sample(source, values, target, results, sample);
    for (std::int64_t i = sample * of_sample; i < (sample + 1) * of_sample; ++i) set(results[i], to_float(values[i]));
  };
  constexpr std::int64_t kElementsWorthSharing = std::int64_t{1} << 16;
  if (target.elements() >= kElementsWorthSharing) {
    return stream.run(static_cast<int>(target.samples()), [&](int sample) { copy(sample); });
  }
  for (std::int64_t sample = 0; sample < target.samples(); ++sample) copy(sample);
}

}  // namespace

void convert_activation(CpuStream& stream, const StoredActivation& from, const StoredActivation& to) {
  if (from.layout.is_bf16()) {
    to.layout.is_bf16() ? convert<Bf16, Bf16>(stream, from, to) : convert<float, Bf16>(stream, from, to);
  } else {
    to.layout.is_bf16() ? convert<Bf16, float>(stream, from, to) : convert<float, float>(stream, from, to);
  }
}

Staged::Staged(const Layout& given, const Layout& wanted)
    : given_(given), wanted_(wanted), same_(given == wanted), copy_(same_ ? Buffer() : allocate_host(wanted.bytes())) {}

const void* Staged::load(CpuStream& stream, const void* address) {
  given_address_ = const_cast<void*>(address);
  if (!same_) convert_activation(stream, {given_, given_address_}, {wanted_, copy_.data()});
  return this->address();
}

void Staged::deliver(CpuStream& stream) {
  if (!same_) convert_activation(stream, {wanted_, copy_.data()}, {given_, given_address_});
}

void Staged::deliver_gradient(CpuStream& stream, void* values, void* to) const {
  if (!same_ && to != nullptr) convert_activation(stream, {wanted_, values}, {given_, to});
}

}  // namespace tutti::cpu
