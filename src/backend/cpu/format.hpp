#pragma once
// Layouts: between the shapes of the seam and oneDNN's memory descriptors. Layouts with blocks of channels
// pad these; padding holds zeros, which oneDNN's primitives expect and keep.

#include "tutti/backend/layer.hpp"

#include <dnnl.hpp>

#include <span>

namespace tutti::cpu {

using Desc = dnnl::memory::desc;

class Format final : public ActivationFormat {
 public:
  explicit Format(Desc desc) : desc_(std::move(desc)) {}
  const Desc& desc() const noexcept { return desc_; }

 private:
  Desc desc_;
};

dnnl::memory::dims dims_of(const Shape& shape);

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

dnnl::memory::dims dims_of(const Desc& desc);
Type type_of(const Desc& desc);
// The name of the layout: plain, channels last, or blocks of 8 or 16 channels. Throws an internal error for others.
Tag tag_of(const Desc& desc);

// Dense, row-major: how canonical values lie.
Desc plain(const dnnl::memory::dims& dims, Type type = Type::f32);
// Dense with the channels innermost; `dims` are N, C, H, W.
Desc channels_last(const dnnl::memory::dims& dims, Type type);
// Left to oneDNN.
Desc any(const dnnl::memory::dims& dims, Type type);
// The same layout for elements of another type.
Desc with_type(const Desc& desc, Type type);

bool is_plain(const Desc& desc);
bool pads_channels(const Desc& desc);

ActivationSpec activation_of(const Shape& shape, const Desc& desc);
// Throws when another backend made the activation.
const Desc& desc_of(const ActivationSpec& activation);

}  // namespace tutti::cpu
