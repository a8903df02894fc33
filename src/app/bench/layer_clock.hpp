#pragma once
// Where one step's time goes, layer by layer, as the trainer does it: by the places that its thread tells of. For
// processors that have done what their thread has passed, and one part.

#include "tutti/watch/whereabouts.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

struct LayerSeconds {
  double forward = 0;
  double backward = 0;
};

struct ProfiledStep {
  std::vector<LayerSeconds> layers;
  double data = 0;
  double loss = 0;
  double exchange = 0;
  double update = 0;  // of weights, statistics and what the layers make of them
  double step = 0;    // all of it

  // What is in none of these.
  double left() const;
};

class LayerClock : public PlaceListener {
 public:
  // Borrowed.
  explicit LayerClock(Whereabouts& whereabouts);
  LayerClock(const LayerClock&) = delete;
  LayerClock& operator=(const LayerClock&) = delete;
  ~LayerClock() override;

  void on_begin(const Place& place) override;
  void on_layer() override;
  void on_end(const Stay& stay) override;
  // What was seen since the last call, the phase under way included; what is left of that phase does not count.
  ProfiledStep take();

 private:
  double lap(std::int64_t at_ns);
  void count(double seconds);

  Whereabouts& whereabouts_;
  Phase phase_ = Phase::starting;
  std::int64_t since_ns_;
  std::size_t passed_ = 0;  // layers that went forward, less those that came back
  ProfiledStep seen_;
};

}  // namespace tutti
