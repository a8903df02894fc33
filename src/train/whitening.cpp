#include "tutti/nn/whitening.hpp"

#include "tutti/train/trainer.hpp"

#include <algorithm>

namespace tutti {

// Reads the first images or, if they are large, fewer that are spread over the data set, normalized but not augmented.
void set_whitening(Network& network, const Dataset& train, const ImageRecipe& recipe) {
  constexpr std::int64_t kMostImages = 5000;
  constexpr std::int64_t kMostPatches = kMostImages * 32 * 32;
  for (std::size_t layer = 0; layer < network.layers().size(); ++layer) {
    if (network.spec().layers[layer].initializer != LayerInitializer::whitening) continue;
    const auto& convolution = std::get<Conv2dSpec>(network.layers()[layer].spec);
    const auto backend = make_cpu_backend();
    const auto stream = backend->make_stream();
    ChunkReader reader(train, *backend, recipe, 1);
    PatchCovariance covariance(network.sample(), convolution.kernel);
    const std::int64_t samples = train.info().samples;
    const std::int64_t images =
        std::min({kMostImages, samples, std::max<std::int64_t>(1, kMostPatches / covariance.patches_of_image())});
    const std::int64_t step = images < kMostImages ? samples / images : 1;
    for (std::int64_t i = 0; i < images; ++i) covariance.add(host_f32(reader.read(*stream, i * step, 1).images));
    network.set_whitening(layer, covariance.whitening(convolution.channels));
  }
}

}  // namespace tutti
