#pragma once
// lenet in double precision and plain loops, one image at a time, with plain gradient descent: what the trainer's
// losses are compared with. Shares no code with the library.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tutti::reference {

using Values = std::vector<double>;

// Channels x height x width.
struct Extent {
  std::size_t c = 0, h = 0, w = 0;
  std::size_t size() const { return c * h * w; }
  std::size_t at(std::size_t i, std::size_t y, std::size_t x) const { return (i * h + y) * w + x; }
};

class LenetDouble {
 public:
  // Weights by name: "conv1/weight" and so on, canonical order.
  LenetDouble(Extent image, std::size_t classes, std::map<std::string, Values> weights)
      : image_(image), classes_(classes), weights_(std::move(weights)) {
    for (const auto& [name, values] : weights_) gradients_[name].assign(values.size(), 0.0);
  }

  // Adds one image's gradient, scaled, and returns its loss.
  double accumulate(const Values& image, std::size_t label, double scale) {
    Convolution conv1{image_, {20, image_.h - 2, image_.w - 2}, 3, "conv1"};
    Pool pool1 = pool_after(conv1.out);
    Convolution conv2{pool1.out, {50, pool1.out.h - 4, pool1.out.w - 4}, 5, "conv2"};
    Pool pool2 = pool_after(conv2.out);

    const Values a1 = relu(forward(conv1, image));
    const Values p1 = forward(pool1, a1);
    const Values a2 = relu(forward(conv2, p1));
    const Values p2 = forward(pool2, a2);
    const Values h = relu(dense(p2, 128, "dense1"));
    const Values logits = dense(h, classes_, "dense2");

    double loss = 0;
    const Values d_logits = softmax_gradient(logits, label, scale, loss);
    Values d_h = dense_backward(h, d_logits, "dense2");
    mask(d_h, h);
    const Values d_p2 = dense_backward(p2, d_h, "dense1");
    Values d_a2 = backward(pool2, d_p2, a2.size());
    mask(d_a2, a2);
    const Values d_p1 = backward(conv2, p1, d_a2);
    Values d_a1 = backward(pool1, d_p1, a1.size());
    mask(d_a1, a1);
    backward(conv1, image, d_a1);
    return loss;
  }

  void descend(double learning_rate) {
    for (auto& [name, values] : weights_) {
      Values& gradient = gradients_[name];
      for (std::size_t i = 0; i < values.size(); ++i) values[i] -= learning_rate * gradient[i];
      gradient.assign(gradient.size(), 0.0);
    }
  }

 private:
  struct Convolution {
    Extent in, out;
    std::size_t kernel;
    std::string name;
  };
  struct Pool {
    Extent in, out;
    std::vector<std::size_t> winners;
  };

  static Pool pool_after(Extent in) { return {in, {in.c, in.h / 2, in.w / 2}, {}}; }

  static Values relu(Values x) {
    for (double& value : x) value = value > 0 ? value : 0;
    return x;
  }
  static void mask(Values& gradient, const Values& output) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      if (!(output[i] > 0)) gradient[i] = 0;
    }
  }

  Values forward(const Convolution& conv, const Values& x) {
    const Values& weight = weights_.at(conv.name + "/weight");
    const Values& bias = weights_.at(conv.name + "/bias");
    Values y(conv.out.size());
    for_each_tap(conv, [&](std::size_t w, std::size_t i, std::size_t o) { y[o] += weight[w] * x[i]; });
    for (std::size_t o = 0; o < y.size(); ++o) y[o] += bias[o / (conv.out.h * conv.out.w)];
    return y;
  }

  Values backward(const Convolution& conv, const Values& x, const Values& d_y) {
    const Values& weight = weights_.at(conv.name + "/weight");
    Values& d_weight = gradients_.at(conv.name + "/weight");
    Values& d_bias = gradients_.at(conv.name + "/bias");
    Values d_x(x.size());
    for_each_tap(conv, [&](std::size_t w, std::size_t i, std::size_t o) {
      d_weight[w] += x[i] * d_y[o];
      d_x[i] += weight[w] * d_y[o];
    });
    for (std::size_t o = 0; o < d_y.size(); ++o) d_bias[o / (conv.out.h * conv.out.w)] += d_y[o];
    return d_x;
  }

  // Calls visit(weight, input, output) for every product of the convolution.
  template <class Visit>
  static void for_each_tap(const Convolution& conv, Visit visit) {
    for (std::size_t o = 0; o < conv.out.c; ++o)
      for (std::size_t i = 0; i < conv.in.c; ++i)
        for (std::size_t ky = 0; ky < conv.kernel; ++ky)
          for (std::size_t kx = 0; kx < conv.kernel; ++kx) {
            const std::size_t w = ((o * conv.in.c + i) * conv.kernel + ky) * conv.kernel + kx;
            for (std::size_t y = 0; y < conv.out.h; ++y)
              for (std::size_t x = 0; x < conv.out.w; ++x)
                visit(w, conv.in.at(i, y + ky, x + kx), conv.out.at(o, y, x));
          }
  }

  static Values forward(Pool& pool, const Values& x) {
    Values y(pool.out.size());
    pool.winners.assign(y.size(), 0);
    for (std::size_t c = 0; c < pool.out.c; ++c)
      for (std::size_t row = 0; row < pool.out.h; ++row)
        for (std::size_t column = 0; column < pool.out.w; ++column) {
          std::size_t best = pool.in.at(c, 2 * row, 2 * column);
          for (const std::size_t other :
               {pool.in.at(c, 2 * row, 2 * column + 1), pool.in.at(c, 2 * row + 1, 2 * column),
                pool.in.at(c, 2 * row + 1, 2 * column + 1)}) {
            if (x[other] > x[best]) best = other;
          }
          const std::size_t o = pool.out.at(c, row, column);
          y[o] = x[best];
          pool.winners[o] = best;
        }
    return y;
  }

  static Values backward(const Pool& pool, const Values& d_y, std::size_t inputs) {
    Values d_x(inputs);
    for (std::size_t o = 0; o < d_y.size(); ++o) d_x[pool.winners[o]] += d_y[o];
    return d_x;
  }

  Values dense(const Values& x, std::size_t units, const std::string& name) {
    const Values& weight = weights_.at(name + "/weight");
    Values y = weights_.at(name + "/bias");
    for (std::size_t u = 0; u < units; ++u)
      for (std::size_t i = 0; i < x.size(); ++i) y[u] += weight[u * x.size() + i] * x[i];
    return y;
  }

  Values dense_backward(const Values& x, const Values& d_y, const std::string& name) {
    const Values& weight = weights_.at(name + "/weight");
    Values& d_weight = gradients_.at(name + "/weight");
    Values& d_bias = gradients_.at(name + "/bias");
    Values d_x(x.size());
    for (std::size_t u = 0; u < d_y.size(); ++u) {
      d_bias[u] += d_y[u];
      for (std::size_t i = 0; i < x.size(); ++i) {
        d_weight[u * x.size() + i] += d_y[u] * x[i];
        d_x[i] += weight[u * x.size() + i] * d_y[u];
      }
    }
    return d_x;
  }

  static Values softmax_gradient(const Values& logits, std::size_t label, double scale, double& loss) {
    double sum = 0;
    for (const double z : logits) sum += std::exp(z);
    loss = std::log(sum) - logits[label];
    Values gradient(logits.size());
    for (std::size_t k = 0; k < logits.size(); ++k) {
      gradient[k] = (std::exp(logits[k]) / sum - (k == label ? 1.0 : 0.0)) * scale;
    }
    return gradient;
  }

  Extent image_;
  std::size_t classes_;
  std::map<std::string, Values> weights_;
  std::map<std::string, Values> gradients_;
};

}  // namespace tutti::reference
