"""Sentences about the errata that explain differences between the paper's numbers and ours."""

SENTENCES = {
    "E1": "Theta is not learned in the published networks. The code computes "
    "theta (1 - gamma/lam) + gamma prox/(d lam): it divides the proximal point by the dimension d, "
    "where it should divide the displacement. Theta decays to about 0 whatever the data are.",
    "E2": "The normaliser of a Laplace density of scale exp(2 alpha) in d dimensions is "
    "2 d alpha; the paper has d alpha.",
    "E3": "PIPULA and PPGD double the likelihood: the published step is prox(v + 2 gamma grad g1), "
    "with the wrong sign in print and twice the gradient in the code. Completing the square gives "
    "prox(v - gamma grad g1). Rows marked “published” do what the code did.",
    "E4": "The paper's approximate prox of e^theta |x|_* moves theta by +W(.), with W the Lambert "
    "function; it should be minus: a penalty that is minimised lowers its own strength.",
    "E5": "The published images are an artefact. The code passes its (rows, columns, N) array to a "
    "total variation prox for one image, which silently processes particle 0; all others get a "
    "proximal point of zeros. And theta's gradient uses isotropic total variation beside an "
    "anisotropic prox. Rows marked “published” do that.",
    "E6": "NMSE is measured against the theta that generated the data, not against the maximiser "
    "of the marginal likelihood, which is what the algorithms estimate. A perfect optimiser has an "
    "NMSE above zero; a biased one may have a smaller one. Hence the distance to the reference.",
    "E7": "d log(theta) and e^theta TV(x) are not convex in both together, so assumptions of the "
    "theorems do not hold for the uniform prior in centred form, nor for total variation. Total "
    "variation is invariant to constants, so its normaliser has the exponent d - 1, not d.",
    "E8": "The iterative map of the Laplace term is written with a wrong sign in one sum; and its "
    "40 sweeps need not converge.",
    "E9": "Published times include appending the whole history of the particles at every step.",
    "E10": "Published settings differ from those of the code: gamma of PIPULA and PPGD is twice "
    "the step; uniform MYIPLA ran with (lam, gamma) = (0.5, 0.005), not (0.01, 0.001). The blur of "
    "the deblurring code is over 11×11 pixels, renormalised at the edges, with noise .47. The "
    "networks ran with lam = .5, .35 and .05 for MYIPLA, MYPGD and PIPGLA, for 250 to 300 steps, "
    "from Normal weights.",
    "E11": "The “prox” of the published activation experiment is 0 or 1: the derivative of the "
    "hard tanh, but for a strip of .001 beside its kinks, whatever the smoothing is. So MYIPLA and "
    "MYPGD are IPLA and PGD there, and PIPGLA adds the whole gradient, without a step size.",
    "E12": "With the right normaliser the joint prox of a scale has a collapsed minimum, and "
    "centred schemes move alpha along a nearly flat direction: after 500 steps it is where step "
    "times steps put it. The non-centred form w = exp(2 alpha) z converges.",
    "E13": "PIPGLA with lam different from gamma weights the prior by lam/gamma against the "
    "likelihood; only lam = gamma is consistent. In deblurring theta relaxes in a Langevin time of "
    "about 3 exp(-2 theta), some 100000 steps of size .01: 3000 steps show the transient. And "
    "theta's noise sqrt(2 gamma/N) beside a gradient divided by d never lets it settle.",
    "E15": "PIPGLA's complexity is misstated: a step contracts by at least sqrt(1 - gamma mu), "
    "with gamma of order eps²/d_x, so the steps are of order d_x eps^-2 log(1/eps); and lam must "
    "lie between gamma and gamma/(1 - mu gamma).",
    "E16": "A hidden 1/lam: the constants of MYPGD and MYIPLA grow with L + 1/lam, the Lipschitz "
    "constant of the smoothed gradient, while lam falls with the error.",
    "E19": "The corollary on PIPULA assumes that U is Lipschitz and strongly convex, which no "
    "function is. The bound here has another proof, and order gamma^(1/4).",
    "E20": "The bound on the distance of the maximisers expands the prox in powers of lam, which "
    "fails within lam of a kink: at a one-sided kink that adds a term of first order.",
}
