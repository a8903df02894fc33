#pragma once
// The numbers that every element of an AdamW step is computed with: the same on every backend, so that bits are, too.

namespace tutti {

struct AdamWStep;

// Plain numbers, for kernels too.
struct AdamWFactors {
  float kept;  // of a weight, after its decay
  float rate;
  float beta1;
  float beta2;
  float fresh1;
  float fresh2;
  float inverse_root;
  float epsilon;
};

AdamWFactors factors_of(const AdamWStep& step);

}  // namespace tutti
