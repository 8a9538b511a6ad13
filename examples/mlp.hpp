// A multi-layer perceptron, forward and backward by hand: matrix products by Eigen, shared out over a pool in
// blocks that do not depend on the number of threads, so that neither do the weights.
#pragma once

#include <trireme/core/philox.hpp>
#include <trireme/threads/parallel_for.hpp>
#include <trireme/threads/pool.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace example {

namespace tr = trireme;

/// Layers of `widths`, ReLU between them, softmax cross-entropy behind the last. Parameter 2l is the weight of
/// layer l, [widths[l], widths[l+1]], parameter 2l+1 its bias. Where they lie is the caller's matter: `Net` has
/// param<Scalar>(i) and grad<Scalar>(i), spans.
template <class Scalar>
class mlp {
    using matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using view = Eigen::Map<matrix>;
    using const_view = Eigen::Map<const matrix>;
    using index = Eigen::Index;

  public:
    mlp(tr::pool& pool, std::vector<std::size_t> widths, std::size_t batch)
        : pool_(pool), widths_(std::move(widths)), batch_(batch) {
        for (const auto w : widths_) {
            outputs_.emplace_back(static_cast<index>(batch), static_cast<index>(w));
            errors_.emplace_back(static_cast<index>(batch), static_cast<index>(w));
        }
    }

    std::size_t layers() const { return widths_.size() - 1; }
    std::size_t parameters() const { return 2 * layers(); }
    static std::string name_of(std::size_t i) {
        return "layer" + std::to_string(i / 2) + (i % 2 == 0 ? ".weight" : ".bias");
    }
    static std::vector<std::size_t> shape_of(const std::vector<std::size_t>& widths, std::size_t i) {
        return i % 2 == 0 ? std::vector{widths[i / 2], widths[i / 2 + 1]} : std::vector{widths[i / 2 + 1]};
    }

    /// He initialisation: the same numbers for the same seed, in float and in double.
    template <class Net>
    void init(Net& net, std::uint64_t seed) const {
        for (std::size_t i = 0; i < parameters(); ++i) {
            const auto p = net.template param<Scalar>(i);
            if (i % 2 == 1) {
                std::fill(p.begin(), p.end(), Scalar(0));
                continue;
            }
            tr::philox random(seed, i);
            const double limit = std::sqrt(6.0 / static_cast<double>(widths_[i / 2]));
            for (auto& w : p) w = static_cast<Scalar>(static_cast<float>((2.0 * random.uniform() - 1.0) * limit));
        }
    }

    /// Pixels of the first layer, scaled to 0 .. 1.
    template <class Images>
    void input(const Images& images) {
        const auto pixels = images.span();
        Scalar* const x = outputs_[0].data();
        for (std::size_t i = 0; i < pixels.size(); ++i) x[i] = static_cast<Scalar>(pixels[i]) * Scalar(1.0 / 255.0);
    }

    template <class Net>
    void forward(Net& net) {
        for (std::size_t l = 0; l < layers(); ++l) {
            const auto w = weights(net.template param<Scalar>(2 * l), l);
            const auto b = net.template param<Scalar>(2 * l + 1);
            const matrix& in = outputs_[l];
            matrix& out = outputs_[l + 1];
            blocks(widths_[l + 1], [&](index first, index count) {
                out.middleCols(first, count).noalias() = in * w.middleCols(first, count);
                for (index r = 0; r < out.rows(); ++r) {
                    for (index c = first; c < first + count; ++c) {
                        const Scalar v = out(r, c) + b[static_cast<std::size_t>(c)];
                        out(r, c) = l + 1 < layers() && v < Scalar(0) ? Scalar(0) : v;
                    }
                }
            });
        }
    }

    /// How many of the first `rows` rows have their highest output at the label.
    template <class Labels>
    long hits(const Labels& labels, std::size_t rows) const {
        long n = 0;
        for (std::size_t r = 0; r < rows; ++r) {
            index best = 0;
            outputs_.back().row(static_cast<index>(r)).maxCoeff(&best);
            n += best == labels(r) ? 1 : 0;
        }
        return n;
    }

    /// Gradients of the mean loss over the batch, written into net.grad(i); `ready(i)` as soon as each is. Returns
    /// the sum of the losses.
    template <class Labels, class Net, class Ready>
    double backward(const Labels& labels, Net& net, Ready&& ready) {
        const double loss = softmax_error(labels);
        for (std::size_t l = layers(); l-- > 0;) {
            const auto w = weights(net.template param<Scalar>(2 * l), l);
            const auto gw = net.template grad<Scalar>(2 * l);
            const auto gb = net.template grad<Scalar>(2 * l + 1);
            view into(gw.data(), static_cast<index>(widths_[l]), static_cast<index>(widths_[l + 1]));
            const matrix& error = errors_[l + 1];
            blocks(widths_[l + 1], [&](index first, index count) {
                into.middleCols(first, count).noalias() = outputs_[l].transpose() * error.middleCols(first, count);
                for (index c = first; c < first + count; ++c) {  // in row order, however the block is aligned
                    Scalar sum = 0;
                    for (index r = 0; r < error.rows(); ++r) sum += error(r, c);
                    gb[static_cast<std::size_t>(c)] = sum;
                }
            });
            ready(2 * l + 1);
            ready(2 * l);
            if (l == 0) break;
            matrix& below = errors_[l];
            blocks(widths_[l], [&](index first, index count) {
                below.middleCols(first, count).noalias() = error * w.middleRows(first, count).transpose();
                for (index r = 0; r < below.rows(); ++r) {
                    for (index c = first; c < first + count; ++c)
                        if (outputs_[l](r, c) <= Scalar(0)) below(r, c) = Scalar(0);
                }
            });
        }
        return loss;
    }

  private:
    static constexpr std::size_t block = 256;

    const_view weights(std::span<const Scalar> p, std::size_t l) const {
        return const_view(p.data(), static_cast<index>(widths_[l]), static_cast<index>(widths_[l + 1]));
    }
    /// f(first, count) for column blocks of fixed size: Eigen's order of additions depends on the shape of a
    /// product.
    template <class F>
    void blocks(std::size_t columns, F&& f) {
        tr::parallel_for(pool_, std::size_t{0}, (columns + block - 1) / block, [&](std::size_t i) {
            f(static_cast<index>(i * block), static_cast<index>((std::min)(block, columns - i * block)));
        });
    }

    /// Turns the outputs into errors_: (softmax - one hot) / batch.
    template <class Labels>
    double softmax_error(const Labels& labels) {
        const matrix& z = outputs_.back();
        matrix& e = errors_.back();
        double loss = 0;
        for (index r = 0; r < z.rows(); ++r) {
            Scalar most = z(r, 0), sum = 0;
            for (index c = 1; c < z.cols(); ++c) most = (std::max)(most, z(r, c));
            for (index c = 0; c < z.cols(); ++c) sum += e(r, c) = std::exp(z(r, c) - most);
            const auto label = static_cast<index>(labels(static_cast<std::size_t>(r)));
            loss += static_cast<double>(std::log(sum) - (z(r, label) - most));
            for (index c = 0; c < z.cols(); ++c)
                e(r, c) = (e(r, c) / sum - (c == label ? Scalar(1) : Scalar(0))) / static_cast<Scalar>(batch_);
        }
        return loss;
    }

    tr::pool& pool_;
    std::vector<std::size_t> widths_;
    std::size_t batch_;
    std::vector<matrix> outputs_, errors_;  // [batch, width] of every layer
};

/// SGD with momentum: v = momentum v + g, w = w - rate v.
template <class Scalar>
class sgd {
  public:
    sgd(Scalar rate, Scalar momentum) : rate_(rate), momentum_(momentum) {}
    void set_rate(Scalar rate) { rate_ = rate; }

    template <class Net>
    void step(Net& net, std::size_t parameters) {
        velocity_.resize(parameters);
        for (std::size_t i = 0; i < parameters; ++i) {
            const auto w = net.template param<Scalar>(i);
            const auto g = net.template grad<Scalar>(i);
            auto& v = velocity_[i];
            v.resize(w.size());
            for (std::size_t k = 0; k < w.size(); ++k) {
                v[k] = momentum_ * v[k] + g[k];
                w[k] -= rate_ * v[k];
            }
        }
    }

  private:
    Scalar rate_, momentum_;
    std::vector<std::vector<Scalar>> velocity_;
};

}  // namespace example
